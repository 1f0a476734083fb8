"""The state directory of a backfill: its plan, its progress, its failed records, and a lock.

Thread: the driver's, alone.

Owns the directory while it is open. Only the driver writes here, so the directory may be local to its machine. Files
are replaced as a whole: a kill leaves the old or the new one. A failed record is listed before the progress that has it
settled is saved. A record that is listed but not settled was in flight at a kill: it is reprocessed, and is removed
from the list.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self, TextIO

from multilane.engines.backfill.progress import BackfillPlan, BackfillProgress, new_progress, plan_from, progress_from
from multilane.errors import ConfigError
from multilane.outcome.in_place import ExhaustedRecord

_PLAN: Final = "plan.json"
_PROGRESS: Final = "progress.json"
_LOCK: Final = "lock"


class StateFiles:
    """Locked while it is open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: TextIO | None = None
        self._failed: TextIO | None = None

    def __enter__(self) -> Self:
        self._check_directory()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / _LOCK).open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ConfigError(f"{self.directory}: this backfill is already running: wait for it, or stop it") from None
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._failed, self._lock):
            if file is not None:
                file.close()

    def _check_directory(self) -> None:
        if self.directory.is_dir() and not (self.directory / _PLAN).exists():
            ours = {_LOCK, f".{_PLAN}.part"}  # left by a run that was killed at its start
            others = sorted(path.name for path in self.directory.iterdir() if path.name not in ours)
            if others:
                raise ConfigError(
                    f"{self.directory} has no backfill in it, but {others[0]}: "
                    "set --state to a directory that is new or empty"
                )

    # --- the plan ----------------------------------------------------------------------------------------------------

    def plan(self) -> BackfillPlan | None:
        """None if there is no backfill."""
        saved = self._read(_PLAN)
        return None if saved is None else plan_from(saved)

    def begin(self, plan: BackfillPlan) -> None:
        self._write(_PLAN, plan.to_json())

    # --- the progress ------------------------------------------------------------------------------------------------

    def load(self, plan: BackfillPlan) -> BackfillProgress:
        saved = self._read(_PROGRESS)
        progress = new_progress(plan) if saved is None else progress_from(plan, saved)
        lines = self._failed_lines(progress)
        kept = [line for line in lines if progress.is_settled(line["partition"], line["offset"])]
        progress.failed = {(line["partition"], line["offset"]) for line in kept}
        if len(kept) < len(lines):
            _replace(self.failed_path(progress), "".join(json.dumps(line) + "\n" for line in kept))
        return progress

    def save(self, progress: BackfillProgress) -> None:
        self._write(_PROGRESS, progress.to_json())

    # --- failed records ----------------------------------------------------------------------------------------------

    def failed_path(self, progress: BackfillProgress) -> Path:
        number = progress.pass_number
        return self.directory / ("failed.jsonl" if number == 1 else f"failed-{number}.jsonl")

    def list_failed(self, progress: BackfillProgress, failed: Iterable[ExhaustedRecord]) -> None:
        """Append them to the list."""
        text = "".join(json.dumps({"topic": progress.plan.topic, **asdict(one)}) + "\n" for one in failed)
        if not text:
            return
        if self._failed is None:
            self._failed = self.failed_path(progress).open("a", encoding="utf-8")
        self._failed.write(text)
        self._failed.flush()
        os.fsync(self._failed.fileno())

    def _failed_lines(self, progress: BackfillProgress) -> list[dict[str, Any]]:
        """The listed records. Removes a partial last line, which a kill leaves."""
        try:
            text = self.failed_path(progress).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        whole, _, cut = text.rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        if cut:
            _replace(self.failed_path(progress), f"{whole}\n" if whole else "")
        return lines

    # --- files -------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> Any:
        path = self.directory / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise ConfigError(f"{path} is damaged: start a new backfill with another --state") from None

    def _write(self, name: str, content: Any) -> None:
        _replace(self.directory / name, json.dumps(content) + "\n")


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.part")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
