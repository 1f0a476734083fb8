"""Schedules of error consumers: cron expressions with a time zone, `@every`, and named schedules.

Thread: none (pure): the current time is a parameter.

The dialect is that of Go's robfig/cron: five fields, `@every <duration>`, `@hourly` and the like, and an optional
`CRON_TZ=` or `TZ=` prefix. The default time zone is the machine's. cronsim parses the fields; it treats the hours that
daylight saving skips or repeats as Debian's cron does. Owns no timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from multilane.config.app.units import NotAUnit, parse_duration

_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_TEXT_LIMIT: Final = 200
_LONGEST: Final = 10 * 366 * 86_400.0
_EXAMPLES: Final = "write five fields (`*/5 * * * *` is every five minutes), `@every 10m` or `@daily`"
# Any time will do to check that an expression ever fires.
_SOME_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC)


class NotASchedule(ValueError):
    """The text is not a schedule; the message states what to write, without repeating the text."""


def time_zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name such as Europe/Istanbul."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # a name that is no file name, a directory, an unknown name
        raise NotASchedule("this time zone is unknown; write an IANA name such as Europe/Berlin") from None


class _MachineZone(tzinfo):
    """The machine's zone with its transitions; `datetime` itself knows only the offset at one moment."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        del dt
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = dt.replace(tzinfo=UTC).astimezone()
        first = local.replace(tzinfo=self, fold=0)
        # In a repeated hour the same clock time has two offsets; the second has fold 1.
        return first if first.utcoffset() == local.utcoffset() else first.replace(fold=1)


_MACHINE: Final = _MachineZone()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Either `fields` has the five cron fields, or `every` has the interval. `zone` None is the machine's own."""

    text: str
    fields: str | None
    every: timedelta | None
    zone: ZoneInfo | None

    @classmethod
    def parse(cls, text: str, time_zone: str | None = None) -> Schedule:
        """Parses a schedule; raises NotASchedule. A zone in the text overrides the parameter."""
        if len(text) > _TEXT_LIMIT:
            raise NotASchedule(f"this is too long for a schedule; {_EXAMPLES}")
        head, _, rest = text.strip().partition(" ")
        for prefix in ("CRON_TZ=", "TZ="):
            if head.startswith(prefix):
                return cls.parse_plain(text, rest.strip(), time_zone_of(head.removeprefix(prefix)))
        return cls.parse_plain(text, text.strip(), None if not time_zone else time_zone_of(time_zone))

    @classmethod
    def parse_plain(cls, text: str, body: str, zone: ZoneInfo | None) -> Schedule:
        """The schedule of a body without a zone prefix."""
        if not body.startswith("@"):
            return cls(text, _checked(body), None, zone)
        name, _, pause = body.partition(" ")
        if name.lower() == "@every":
            return cls(text, None, _pause(pause), zone)
        if name.lower() not in _NAMED or pause:
            raise NotASchedule(f"write one of {', '.join(_NAMED)}, or `@every 10m`")
        return cls(text, _NAMED[name.lower()], None, zone)

    def next_after(self, now: datetime) -> datetime:
        """The first time after `now` (which has a time zone), in UTC."""
        if self.every is not None:  # counted from the current second, as robfig/cron does
            return now.astimezone(UTC).replace(microsecond=0) + self.every
        moments = CronSim(self.fields or "", now.astimezone(_MACHINE if self.zone is None else self.zone))
        return next(moment for found in moments if (moment := found.astimezone(UTC)) > now)


def _checked(body: str) -> str:
    """Five fields that fire at some time. robfig/cron accepts `?` as another `*`."""
    fields = body.split()
    if len(fields) != 5:
        raise NotASchedule(f"a cron expression has five fields, this one has {len(fields)}; {_EXAMPLES}")
    expression = " ".join("*" if field == "?" else field for field in fields)
    try:
        next(CronSim(expression, _SOME_DAY))
    except CronSimError as error:
        raise NotASchedule(f"{str(error).lower()}; {_EXAMPLES}") from None
    except (ValueError, AssertionError, TypeError, LookupError, StopIteration):
        raise NotASchedule(f"this schedule never fires; {_EXAMPLES}") from None
    return expression


def _pause(text: str) -> timedelta:
    """At least one second, in whole seconds, like robfig/cron."""
    try:
        seconds = parse_duration(text)
    except NotAUnit as error:
        raise NotASchedule(f"@every: {error}") from None
    if not 0 < seconds <= _LONGEST:
        raise NotASchedule("@every needs a duration above zero and below ten years; write for example @every 10m")
    return timedelta(seconds=max(1, int(seconds)))
