"""The manifest of an audit file: its session, the digest it continues, and what was open when it was written.

Thread: any.

Owns the JSON of manifests and session files. A manifest is in the metadata of the Parquet file, so that a file and its
manifest exist together or not at all. The digest covers the audit records, not the bytes of a file, so merging keeps
it. It reveals a damaged or edited file. It is no signature: anyone with write access to the directory can forge it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from multilane.audit.completeness import AuditFile, OpenRange, ReadLog, SessionFile, furthest
from multilane.commit.completion_map import LogIdentity
from multilane.types import TopicPartition

KEY: Final = b"multilane"
SESSIONS_FOLDER: Final = "_sessions"  # the folder of the session files
_VERSION: Final = 1
_NUMBERS: Final = ("partition", "offset", "sequence", "copy_partition", "copy_offset")
_TEXTS: Final = ("topic", "outcome", "session", "copy_topic")


def digest_of(previous: str, table: Any) -> str:
    """The digest of audit records that follow others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    running = hashlib.sha256(f"{previous}/{table.num_rows}".encode())

    def add(column: Any) -> None:
        running.update(np.ascontiguousarray(pc.fill_null(column, -1).cast(pa.int64()).to_numpy()).tobytes())

    for name in _NUMBERS:
        add(table.column(name))
    add(table.column("settled_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    for name in _TEXTS:  # numbered by first appearance: a merge numbers them differently
        texts = table.column(name).cast(pa.string()).combine_chunks().dictionary_encode()
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        running.update(json.dumps(texts.dictionary.to_pylist()).encode())
        add(texts.indices)
    return running.hexdigest()


def with_manifest(table: Any, group: str, file: AuditFile) -> Any:
    """The table, with the manifest in its metadata."""
    manifest = {
        "version": _VERSION,
        "group": group,
        "session": file.session,
        "first": file.first,
        "previous": file.previous,
        "entries": file.entries,
        "open": [[*one.partition, one.start, one.end, one.settled] for one in file.open],
        "logs": logs_to_json(file.logs),
    }
    return table.replace_schema_metadata({KEY: json.dumps(manifest).encode()})


def read_manifest(name: str, metadata: Mapping[bytes, bytes] | None) -> tuple[str, AuditFile] | None:
    """The group and the manifest; None for a file of an earlier version. Raises ValueError if it is malformed."""
    content = (metadata or {}).get(KEY)
    if content is None:
        return None
    try:
        manifest = json.loads(content)
        if manifest["version"] != _VERSION:
            raise ValueError(f"unknown manifest version {manifest['version']}")
        ranges = tuple(
            OpenRange(TopicPartition(topic, partition), start, end, tuple((first, last) for first, last in runs))
            for topic, partition, start, end, runs in manifest["open"]
        )
        entries = tuple((int(rows), str(digest)) for rows, digest in manifest["entries"])
        chained = (manifest["session"], manifest["first"], manifest["previous"], entries)
        return manifest["group"], AuditFile(name, *chained, ranges, logs_from(manifest))
    except (KeyError, TypeError) as error:
        raise ValueError(f"malformed manifest: {error!r}") from error


def merged_metadata(parts: Sequence[Mapping[bytes, bytes] | None]) -> dict[bytes, bytes] | None:
    """The manifest of consecutive files; None if one of them has none."""
    manifests = [json.loads(one[KEY]) for one in parts if one is not None and KEY in one]
    if len(manifests) < len(parts):
        return None
    merged = manifests[-1] | {"first": manifests[0]["first"], "previous": manifests[0]["previous"]}
    merged["entries"] = [entry for one in manifests for entry in one["entries"]]
    merged["logs"] = logs_to_json(furthest(log for one in manifests for log in logs_from(one)))
    return {KEY: json.dumps(merged).encode()}


def logs_to_json(logs: Iterable[ReadLog]) -> Any:
    return [
        [*one.partition, one.end, one.mark.leader_epoch, None if one.mark.topic_id is None else one.mark.topic_id.hex]
        for one in logs
    ]


def logs_from(manifest: Any) -> tuple[ReadLog, ...]:
    return tuple(
        ReadLog(TopicPartition(topic, partition), end, LogIdentity(epoch, None if topic_id is None else UUID(topic_id)))
        for topic, partition, end, epoch, topic_id in manifest.get("logs", ())
    )


def is_unchanged(file: AuditFile, table: Any) -> bool:
    """Whether the audit records are those that were written."""
    digest, start = file.previous, 0
    for rows, written in file.entries:
        digest = digest_of(digest, table.slice(start, rows))
        if digest != written:
            return False
        start += rows
    return start == table.num_rows and all(one == file.session for one in table.column("session").unique().to_pylist())


# --- session files ---------------------------------------------------------------------------------------------------


def session_file_name(number: int, session: str) -> str:
    """Later sessions sort last."""
    return f"{SESSIONS_FOLDER}/{number:08d}-{session}.json"


def session_file_number(name: str) -> int:
    head = name.rpartition("/")[2].partition("-")[0]
    return int(head) if head.isdigit() else 0


def session_file_content(group: str, own: SessionFile) -> bytes:
    since = [[*partition, offset] for partition, offset in sorted(own.since.items())]
    content = {
        "version": _VERSION,
        "group": group,
        "session": own.session,
        "earlier": dict(own.earlier),
    }
    return json.dumps(content | {"since": since, "accounts": own.records}).encode()


def read_session_file(content: bytes) -> tuple[str, SessionFile]:
    """The group and the session file. Raises ValueError if it is malformed."""
    try:
        session_file = json.loads(content)
        since = {TopicPartition(topic, partition): int(offset) for topic, partition, offset in session_file["since"]}
        earlier = {str(session): int(first) for session, first in session_file["earlier"].items()}
        return session_file["group"], SessionFile(session_file["session"], earlier, since, session_file["accounts"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"malformed session file: {error!r}") from error


def sessions_in(names: Iterable[str]) -> dict[str, int]:
    """The sessions in these file names, and the highest first number among the files of each."""
    found: dict[str, int] = {}
    for name in names:
        session, _, rest = name.rpartition("/")[2].removesuffix(".parquet").partition("-")
        number = rest.partition("-")[0]
        if number.isdigit():
            found[session] = max(int(number), found.get(session, -1))
    return found
