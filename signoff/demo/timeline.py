"""What happened in the demo and whether it was as promised: narrated, then shown as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from signoff.demo.ledger import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the timeline; ``at`` is in seconds since the start."""

    at: float
    event: str
    what: str
    latency: str = ""
    delivery: str = ""
    signature: str = ""


class Timeline:
    """Collects rows and checks, and says each as it comes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: list[Row] = []
        self._checked = 0
        self._conclusions: list[str] = []
        self.failures: list[str] = []

    def say(self, text: str) -> None:
        """Tell the viewer what comes next."""
        self._console.print(f"[bold]{escape(text)}[/bold]")

    def add(self, row: Row) -> None:
        """Take a row and show it in short."""
        self._rows.append(row)
        end = " ".join(part for part in (row.delivery, row.signature) if part)
        line = f"  {row.at:6.2f} s  {row.event:<19} {row.what}"
        self._console.print(escape(f"{line}  [{end}]" if end else line), soft_wrap=True)

    def check(self, what: str, *, holds: bool) -> None:
        """Keep one expectation; it is shown at once when it does not hold."""
        self._checked += 1
        if not holds:
            self.fail(what)

    def conclude(self, text: str) -> None:
        """Keep a sentence to print below the tables."""
        self._conclusions.append(text)

    def fail(self, what: str) -> None:
        """Keep something that did not hold."""
        self.failures.append(what)
        self._console.print(f"  [red]not so:[/red] {escape(what)}")

    def show(self, entries: Sequence[Entry]) -> None:
        """Print the timeline, the ledger and the verdict."""
        self._console.print()
        self._console.print(_timeline(sorted(self._rows, key=lambda row: row.at)))
        self._console.print()
        self._console.print(_ledger(entries))
        for text in self._conclusions:
            self._console.print(escape(text))
        if self.failures:
            self._console.print(f"[red]{len(self.failures)} expectations did not hold:[/red]")
            for text in self.failures:
                self._console.print(f"  - {escape(text)}")
        else:
            self._console.print(f"[green]All {self._checked} expectations held.[/green]")


def _timeline(rows: Sequence[Row]) -> Table:
    table = Table(title="Timeline", title_justify="left", box=SIMPLE_HEAD, expand=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("event", no_wrap=True)
    table.add_column("what", ratio=1)
    table.add_column("latency", justify="right", no_wrap=True)
    table.add_column("delivery", no_wrap=True)
    table.add_column("signature", no_wrap=True)
    for row in rows:
        cells = (row.event, row.what, row.latency, row.delivery, row.signature)
        table.add_row(f"{row.at:.2f}", *map(escape, cells))
    return table


def _ledger(entries: Sequence[Entry]) -> Table:
    table = Table(title="Ledger: what the tools really did", title_justify="left", box=SIMPLE_HEAD)
    for name in ("tool", "phase", "attempt", "idempotency key", "digest"):
        table.add_column(name, no_wrap=True)
    for entry in entries:
        cells = (entry.tool, entry.phase, str(entry.attempt), entry.idempotency_key)
        table.add_row(*map(escape, cells), f"{entry.digest[:16]}…")
    return table
