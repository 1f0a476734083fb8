"""What Kafka's own Java consumer makes of a partition: the second opinion of the tests."""

from __future__ import annotations

from broker.produce import Row
from multilane.dev.kafka import KafkaCluster

_CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_NULL = "<null>"
_FORMAT = {
    "print.timestamp": "true",
    "print.partition": "true",
    "print.offset": "true",
    "print.headers": "true",
    "print.key": "true",
    "null.literal": _NULL,
    "key.separator": "|",
    "headers.separator": ";",
}
_TYPES = {"CreateTime": 0, "LogAppendTime": 1}
_QUIET_MS = (3_000, 30_000)  # the second, when a machine was so busy that nothing came at all


def java_rows(kafka: KafkaCluster, topic: str, *, isolation: str, partition: int = 0) -> list[Row]:
    """Everything the Java consumer reads of a partition, until nothing has come for a while.

    Keys, values and header values must be text without `|`, `;`, `:` and line ends.
    """
    where = ("--bootstrap-server", kafka.bootstrap(), "--topic", topic, "--partition", str(partition))
    how = ("--offset", "earliest", "--isolation-level", isolation)
    form = [word for key, value in _FORMAT.items() for word in ("--formatter-property", f"{key}={value}")]
    rows: list[Row] = []
    for quiet in _QUIET_MS:
        told = kafka.tool(_CONSOLE, *where, *how, "--timeout-ms", str(quiet), *form)
        rows = [_row(line) for line in told.stdout.splitlines()]
        assert f"Processed a total of {len(rows)} messages" in told.stderr
        if rows:
            break
    return rows


def _row(line: str) -> Row:
    time, partition, offset, headers, key, value = line.split("|")
    kind, _, timestamp = time.partition(":")
    return Row(
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
        int(timestamp),
        _TYPES[kind],
        _bytes(key),
        _bytes(value),
        () if headers == "NO_HEADERS" else tuple(_header(text) for text in headers.split(";")),
    )


def _header(text: str) -> tuple[str, bytes | None]:
    key, _, value = text.partition(":")
    return key, _bytes(value)


def _bytes(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()
