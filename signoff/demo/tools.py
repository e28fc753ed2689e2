"""The tools of `signoff demo`; each call's start and end is one line of the ledger."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from signoff.tooldef import current_call, tool

LEDGER = "SIGNOFF_DEMO_LEDGER"
#: Long enough to be killed in the middle of it, short enough to wait for.
CALENDAR_S = 1.5


@tool(read_only=True)
def find_customers(product: str) -> str:
    """List the customers of a product by their email addresses."""
    with _recorded():
        return f"Customers of {product}: ops@customer.example"


@tool(read_only=True)
def check_calendar(day: str) -> str:
    """Say whether a day is free of other maintenance; takes a moment."""
    with _recorded():
        time.sleep(CALENDAR_S)
        return f"{day} is free."


@tool
def send_email(to: str, subject: str, body: str) -> str:
    """Send an email to one recipient; the demo only records it in its ledger."""
    with _recorded():
        return f"Email sent to {to}: {subject!r}, {len(body)} characters."


@contextlib.contextmanager
def _recorded() -> Generator[None]:
    """Write the call's start, and its end unless the process is killed before it."""
    _record("start")
    yield
    _record("end")


def _record(phase: Literal["start", "end"]) -> None:
    # A tool has no composition root above it: the worker's environment is all that it is given.
    path = os.environ.get(LEDGER)  # noqa: TID251
    if not path:
        return
    call = current_call()
    line = {
        "run_id": call.run_id,
        "tool_use_id": call.tool_use_id,
        "tool": call.tool,
        "phase": phase,
        "digest": call.digest,
        "idempotency_key": call.idempotency_key,
        "attempt": call.attempt,
        "ts": time.time(),  # noqa: TID251 - see above
    }
    with Path(path).open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(line) + "\n")
