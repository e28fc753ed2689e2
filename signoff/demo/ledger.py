"""Reads the ledger in which the demo's tools record what really ran."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The start or the end of one execution."""

    run_id: int
    tool: str
    phase: str
    digest: str
    idempotency_key: str
    attempt: int
    at: float


class Ledger:
    """The file, read anew on every question."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, tool: str | None = None, phase: str | None = None) -> list[Entry]:
        """The entries in the order they were written, of one tool or phase if given."""
        if not self.path.exists():
            return []
        # A line that is still being written has no end yet.
        whole = self.path.read_text(encoding="utf-8").rpartition("\n")[0]
        found = [_entry(line) for line in whole.splitlines()]
        return [e for e in found if tool in (None, e.tool) and phase in (None, e.phase)]


def _entry(line: str) -> Entry:
    row = json.loads(line)
    return Entry(
        run_id=row["run_id"],
        tool=row["tool"],
        phase=row["phase"],
        digest=row["digest"],
        idempotency_key=row["idempotency_key"],
        attempt=row["attempt"],
        at=row["ts"],
    )
