"""The notation of the traces in the docstrings of guarantees, read into events; see `multilane.testing.guarantees`."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict

from multilane.testing.events import (
    Committed,
    Copied,
    Ended,
    Event,
    Killed,
    Left,
    Produced,
    Rebalanced,
    RecordPlace,
    Skipped,
    Started,
)

TOPIC, RETRY, ERROR = "t", "t.retry", "t.error"
_TRACE = re.compile(r"^\s+((?:[A-Z][(~)!.#%?]|[a-z0-9]+>[re]|[+=]|r=).*)$")


class _Log:
    def __init__(self):
        self.at = 0.0
        self.copies = defaultdict(list)
        self.places = {}
        self.length = defaultdict(int)
        self.calls = defaultdict(int)

    def append(self, topic):
        place = RecordPlace(topic, 0, self.length[topic])
        self.length[topic] += 1
        return place

    def place(self, word):
        record = word.rstrip("'")
        copies = len(word) - len(record)
        return record, self.copies[record][copies - 1] if copies else self.places[record]

    def events(self, word) -> list[Event]:
        self.at += 1.0
        for pattern, read in _WORDS:
            if found := pattern.fullmatch(word):
                return read(self, *found.groups())
        raise ValueError(f"{word!r} is no event")

    def produced(self, record):
        self.places[record] = self.append(TOPIC)
        return [Produced(self.at, record, record[0], self.places[record])]

    def begun(self, member, words):
        self.calls[member] += 1
        events = []
        for word in words.split(","):
            name, _, attempt = word.partition("^")
            record, place = self.place(name)
            events.append(
                Started(
                    self.at, member, self.calls[member], record, record[0], place, int(attempt or 1 + name.count("'"))
                )
            )
        return events

    def ended(self, member, how, words):
        told = [self.place(word) for word in words.split(",")]
        return [
            Ended(self.at, member, self._call(member, place), record, record[0], place, how == ")")
            for record, place in told
        ]

    def _call(self, member, place):
        return self.open[member, place]

    def skipped(self, member, word, by):
        record, place = self.place(word)
        return [Skipped(self.at, member, record, record[0], place, by)]

    def copied(self, record, where):
        place = self.append(RETRY if where == "r" else ERROR)
        if where == "r":
            self.copies[record].append(place)
        return [Copied(self.at, record, record[0], place, where == "e")]

    def committed(self, where, offset, first, last):
        runs = ((int(first), int(last)),) if first else ()
        return [Committed(self.at, RETRY if where else TOPIC, 0, int(offset), runs)]

    def member(self, member, what):
        kinds = {".": Left, "#": Killed, "%": Rebalanced}
        return [Rebalanced(self.at, member, True) if what == "?" else kinds[what](self.at, member)]


_WORDS = [
    (re.compile(r"\+([a-z]\d)"), _Log.produced),
    (re.compile(r"([A-Z])\(([a-z0-9,'^]+)"), _Log.begun),
    (re.compile(r"([A-Z])([)!])([a-z0-9,']+)"), _Log.ended),
    (re.compile(r"([A-Z])~([a-z]\d'*)<([a-z]\d)"), _Log.skipped),
    (re.compile(r"([a-z]\d)>([re])"), _Log.copied),
    (re.compile(r"(r?)=(\d+)(?::(\d+)-(\d+))?"), _Log.committed),
    (re.compile(r"([A-Z])([.#%?])"), _Log.member),
]


def events_of(trace: str) -> list[Event]:
    log = _Log()
    log.open = {}
    events: list[Event] = []
    for word in trace.split():
        for event in log.events(word):
            if isinstance(event, Started):
                log.open[event.member, event.place] = event.call
            events.append(event)
    return events


def traces_of(guarantee: type) -> list[tuple[str, bool, str]]:
    """(heading, whether it holds, trace) for each that the docstring of a guarantee lists."""
    heading, found = "", []
    for line in (inspect.getdoc(guarantee) or "").splitlines():
        if line.endswith(":") and line.startswith(("Holds", "Does not")):
            heading = line.rstrip(":")
        elif heading and (trace := _TRACE.match(line)):
            found.append((heading, heading.startswith("Holds"), trace[1]))
    return found
