"""Runs one allowed call: exactly the bytes that were allowed, and nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from signoff.canonical import digest
from signoff.domain.call import MAX_RESULT_CHARS, Call
from signoff.domain.error import SignoffError
from signoff.mcpserver import server_of
from signoff.strictjson import well_formed
from signoff.tooldef import CallContext, Tool, use_call

logger = logging.getLogger(__name__)
UNKNOWN_OUTCOME = (
    "The outcome of this tool call is unknown: it was interrupted after it had started. It was "
    "not run again."
)


async def execute(
    tool: Tool | None, call: Call, *, run_id: int, step: int, attempt: int, installation: str
) -> dict[str, str]:
    """The call's result as {state, content}; whatever the tool raises is an error result.

    The digest is computed once more over the input that is passed to the tool; if it is not the
    digest that was allowed, the tool does not run.
    """
    if tool is None:
        away = ", or its MCP server cannot be reached" if server_of(call.tool) else ""
        return _error(f"There is no tool called {call.tool!r} any more{away}; it was not executed.")
    tool_input: dict[str, Any] = json.loads(call.effective_json)
    bound = digest(call.tool, tool_input)
    if bound != call.run_digest:
        logger.error("digest_mismatch run=%d step=%d call=%d", run_id, step, call.n)
        return _error("The input is not the one that was allowed; it was not executed.")
    context = CallContext(
        run_id=run_id,
        tool_use_id=call.id,
        tool=call.tool,
        digest=bound,
        idempotency_key=f"{installation}:{run_id}:{step}:{call.id}",
        attempt=attempt,
    )
    try:
        arguments = tool.check(tool_input)
        with use_call(context):
            content = await tool.run(arguments)
    except asyncio.CancelledError:
        raise
    except SignoffError as error:
        return _edited(call, tool_input, _error(f"{error.code}: {error.message}"))
    except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
        return _edited(call, tool_input, _error(f"{type(error).__name__}: {error}"))
    return _edited(call, tool_input, {"state": "success", "content": _cut(content)})


def _edited(call: Call, tool_input: Mapping[str, Any], result: dict[str, str]) -> dict[str, str]:
    if call.run_input_json is None:
        return result
    shown = json.dumps(tool_input, ensure_ascii=False)
    note = f"The reviewer changed the input before approving. Executed input: {shown}"
    return {**result, "content": f"{note}\nResult: {result['content']}"}


def _error(text: str) -> dict[str, str]:
    return {"state": "error", "content": _cut(well_formed(text))}


def _cut(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[:MAX_RESULT_CHARS]}\n[cut: {len(text)} characters in all]"
