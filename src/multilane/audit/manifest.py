"""What a file of accounts says of itself: who wrote it, what it follows, and what was open when it was written.

Thread: any.

It travels in the Parquet file's own metadata, so that a file and its manifest are there together or not at all. The
digest runs over the accounts themselves, not over the bytes of a file: merging keeps it. It tells a file that was
damaged or edited; it is no signature, and whoever can write the directory can forge it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from multilane.audit.books import AccountFile, Card, ReadLog, Stretch, furthest
from multilane.commit.completion_map import LogMark
from multilane.types import TopicPartition

KEY: Final = b"multilane"
_VERSION: Final = 1
_NUMBERS: Final = ("partition", "offset", "sequence", "copy_partition", "copy_offset")
_TEXTS: Final = ("topic", "outcome", "session", "copy_topic")


def digest_of(previous: str, table: Any) -> str:
    """Of accounts that follow others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    running = hashlib.sha256(f"{previous}/{table.num_rows}".encode())

    def add(column: Any) -> None:
        running.update(np.ascontiguousarray(pc.fill_null(column, -1).cast(pa.int64()).to_numpy()).tobytes())

    for name in _NUMBERS:
        add(table.column(name))
    add(table.column("settled_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    for name in _TEXTS:  # numbered in the order in which they come: a merge numbers them otherwise
        texts = table.column(name).cast(pa.string()).combine_chunks().dictionary_encode()
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        running.update(json.dumps(texts.dictionary.to_pylist()).encode())
        add(texts.indices)
    return running.hexdigest()


def described(table: Any, group: str, file: AccountFile) -> Any:
    """The table, with this in its metadata."""
    told = {
        "version": _VERSION,
        "group": group,
        "session": file.session,
        "first": file.first,
        "previous": file.previous,
        "entries": file.entries,
        "open": [[*one.partition, one.start, one.end, one.settled] for one in file.open],
        "logs": logs_to_json(file.logs),
    }
    return table.replace_schema_metadata({KEY: json.dumps(told).encode()})


def read_manifest(name: str, metadata: Mapping[bytes, bytes] | None) -> tuple[str, AccountFile] | None:
    """The group and the rest; None for a file of an earlier version. ValueError when it is not as we write it."""
    content = (metadata or {}).get(KEY)
    if content is None:
        return None
    try:
        told = json.loads(content)
        if told["version"] != _VERSION:
            raise ValueError(f"its manifest has version {told['version']}")
        stretches = tuple(
            Stretch(TopicPartition(topic, partition), start, end, tuple((first, last) for first, last in runs))
            for topic, partition, start, end, runs in told["open"]
        )
        entries = tuple((int(rows), str(digest)) for rows, digest in told["entries"])
        chained = (told["session"], told["first"], told["previous"], entries)
        return told["group"], AccountFile(name, *chained, stretches, logs_from(told))
    except (KeyError, TypeError) as error:
        raise ValueError(f"its manifest is not understood: {error!r}") from error


def merged_metadata(parts: Sequence[Mapping[bytes, bytes] | None]) -> dict[bytes, bytes] | None:
    """Of files that follow each other; None when one of them has none."""
    told = [json.loads(one[KEY]) for one in parts if one is not None and KEY in one]
    if len(told) < len(parts):
        return None
    whole = told[-1] | {"first": told[0]["first"], "previous": told[0]["previous"]}
    whole["entries"] = [entry for one in told for entry in one["entries"]]
    whole["logs"] = logs_to_json(furthest(log for one in told for log in logs_from(one)))
    return {KEY: json.dumps(whole).encode()}


def logs_to_json(logs: Iterable[ReadLog]) -> Any:
    return [
        [*one.partition, one.end, one.mark.leader_epoch, None if one.mark.topic_id is None else one.mark.topic_id.hex]
        for one in logs
    ]


def logs_from(told: Any) -> tuple[ReadLog, ...]:
    return tuple(
        ReadLog(TopicPartition(topic, partition), end, LogMark(epoch, None if topic_id is None else UUID(topic_id)))
        for topic, partition, end, epoch, topic_id in told.get("logs", ())
    )


def is_unchanged(file: AccountFile, table: Any) -> bool:
    """Whether the accounts are those that were written."""
    digest, at = file.previous, 0
    for rows, written in file.entries:
        digest = digest_of(digest, table.slice(at, rows))
        if digest != written:
            return False
        at += rows
    return at == table.num_rows and all(one == file.session for one in table.column("session").unique().to_pylist())


# --- cards -----------------------------------------------------------------------------------------------------------


def card_name(number: int, session: str) -> str:
    """Those that came later sort behind."""
    return f"_sessions/{number:08d}-{session}.json"


def card_number(name: str) -> int:
    head = name.rpartition("/")[2].partition("-")[0]
    return int(head) if head.isdigit() else 0


def card_content(group: str, card: Card) -> bytes:
    since = [[*partition, offset] for partition, offset in sorted(card.since.items())]
    told = {"version": _VERSION, "group": group, "session": card.session, "earlier": dict(card.earlier)}
    return json.dumps(told | {"since": since, "accounts": card.accounts}).encode()


def read_card(content: bytes) -> tuple[str, Card]:
    """The group and the rest. ValueError when it is not as we write it."""
    try:
        told = json.loads(content)
        since = {TopicPartition(topic, partition): int(offset) for topic, partition, offset in told["since"]}
        earlier = {str(session): int(first) for session, first in told["earlier"].items()}
        return told["group"], Card(told["session"], earlier, since, told["accounts"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not understood: {error!r}") from error


def sessions_in(names: Iterable[str]) -> dict[str, int]:
    """The sessions of files by their names, and the highest number that one of their files begins with."""
    found: dict[str, int] = {}
    for name in names:
        session, _, rest = name.rpartition("/")[2].removesuffix(".parquet").partition("-")
        number = rest.partition("-")[0]
        if number.isdigit():
            found[session] = max(int(number), found.get(session, -1))
    return found
