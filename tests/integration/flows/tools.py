"""The tools of the flows; each execution is noted with what it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from signoff import current_call, tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One execution."""

    run_id: int
    call: str
    tool: str
    given: dict[str, Any]
    digest: str
    key: str


#: All executions of the process, oldest first.
RAN: list[Ran] = []


def _ran(**given: Any) -> str:
    call = current_call()
    RAN.append(
        Ran(
            run_id=call.run_id,
            call=call.tool_use_id,
            tool=call.tool,
            given=given,
            digest=call.digest,
            key=call.idempotency_key,
        )
    )
    return f"did {call.tool_use_id}"


@tool(read_only=True)
async def look(what: str) -> str:
    """Look something up."""
    return _ran(what=what)


@tool
async def send(what: str, copies: int = 1, urgent: bool = False) -> str:
    """Send something; never twice."""
    return _ran(what=what, copies=copies, urgent=urgent)


@tool(idempotent=True)
async def put(what: str) -> str:
    """Put something; again changes nothing."""
    return _ran(what=what)
