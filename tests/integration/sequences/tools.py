"""The tools of the random runs; each execution of an effect is noted."""

from __future__ import annotations

from collections import Counter

from signoff import current_call, tool

#: Executions by idempotency key, across all engines of the process.
RAN: Counter[str] = Counter()


def _ran() -> str:
    call = current_call()
    RAN[call.idempotency_key] += 1
    return f"done {call.tool_use_id}"


@tool(read_only=True)
async def look(what: str) -> str:
    """Look something up."""
    return f"saw {what}"


@tool
async def send(what: str) -> str:
    """Send something; never twice."""
    return _ran()


@tool(idempotent=True)
async def put(what: str) -> str:
    """Put something; again changes nothing."""
    return f"put {what}"


@tool(external=True)
async def outside(what: str) -> str:
    """Somebody else does it."""
    raise NotImplementedError
