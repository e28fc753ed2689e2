"""One allowed call: only the bytes that were allowed reach the tool, and every end is a result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from signoff.canonical import digest
from signoff.domain.call import MAX_RESULT_CHARS, Call, CallState, Effect
from signoff.tooldef import current_call, tool
from workers.executor import execute

pytestmark = pytest.mark.anyio
ran: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget what ran before."""
    ran.clear()
    yield
    ran.clear()


@tool
def send(what: str, copies: int = 1) -> str:
    """Record the call and say so."""
    ran.append({"what": what, "copies": copies})
    return f"sent {what}"


def allowed(tool_input: dict[str, Any], **changes: Any) -> Call:
    bound = digest("send", tool_input)
    call = Call(
        n=2,
        id="toolu_7",
        tool="send",
        input_json=json.dumps(tool_input),
        digest=bound,
        run_digest=bound,
        state=CallState.STARTED,
        effect=Effect.ONCE,
    )
    return replace(call, **changes)


async def run(call: Call, *, function: Any = send) -> dict[str, str]:
    return await execute(function, call, run_id=5, step=3, attempt=2, installation="inst")


async def test_an_allowed_call_runs_as_it_was_allowed() -> None:
    """The tool gets the input, omitted parameters stay omitted, and its result is the content."""
    assert await run(allowed({"what": "x"})) == {"state": "success", "content": "sent x"}
    assert ran == [{"what": "x", "copies": 1}]


@pytest.mark.parametrize(
    "changes",
    [
        {"input_json": '{"what":"y"}'},
        {"run_input_json": '{"what":"y"}'},
        {"run_digest": ""},
        {"run_digest": digest("other", {"what": "x"})},
    ],
)
async def test_other_bytes_than_were_allowed_never_run(
    changes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """An input, a name or a digest that moved since the grant: no execution, and an error line."""
    with caplog.at_level(logging.ERROR):
        result = await run(allowed({"what": "x"}, **changes))
    assert result["state"] == "error"
    assert "not executed" in result["content"]
    assert ran == []
    assert caplog.messages == ["digest_mismatch run=5 step=3 call=2"]


async def test_an_edited_call_runs_the_edit_and_says_so() -> None:
    """The reviewer's input runs under its own digest, and the model sees it."""
    edit = {"what": "y", "copies": 2}
    call = allowed({"what": "x"}, run_input_json=json.dumps(edit), run_digest=digest("send", edit))
    result = await run(call)
    assert ran == [edit]
    assert result["state"] == "success"
    assert "reviewer changed the input" in result["content"]
    assert json.dumps(edit) in result["content"]
    assert result["content"].endswith("Result: sent y")


async def test_a_tool_that_is_gone_is_an_error() -> None:
    """A tool that is not loaded any more is told to the model."""
    result = await run(allowed({"what": "x"}), function=None)
    assert (result["state"], "no tool called 'send'" in result["content"]) == ("error", True)


async def test_the_tool_sees_which_call_it_runs_for() -> None:
    """Run, call, digest and attempt; the idempotency key has nothing of the attempt in it."""

    @tool(name="send")
    def look(what: str) -> str:
        call = current_call()
        return f"{what} {call.run_id} {call.tool_use_id} {call.idempotency_key} {call.attempt}"

    call = allowed({"what": "x"})
    assert (await run(call, function=look))["content"] == "x 5 toolu_7 inst:5:3:toolu_7 2"
    again = await execute(look, call, run_id=5, step=3, attempt=9, installation="inst")
    assert again["content"] == "x 5 toolu_7 inst:5:3:toolu_7 9"


def _raise(error: BaseException) -> Callable[[], str]:
    def failing() -> str:
        raise error

    return failing


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError("no such address"), "ValueError: no such address"),
        (KeyError("\ud800"), "KeyError: "),
        (SystemExit(3), "tool_failed: send raised SystemExit: 3"),
    ],
)
async def test_whatever_a_tool_raises_is_an_error_result(
    error: BaseException, content: str
) -> None:
    """An exception ends the call, not the worker, and its text can be stored."""
    failing = tool(name="send")(_raise(error))
    result = await run(allowed({}), function=failing)
    assert result["state"] == "error"
    assert result["content"].startswith(content)
    result["content"].encode()


async def test_a_long_result_is_cut_and_says_so() -> None:
    """The model's window is not a dump."""

    @tool(name="send")
    def much() -> str:
        return "x" * (MAX_RESULT_CHARS + 5)

    content = (await run(allowed({}), function=much))["content"]
    assert content.startswith("x" * MAX_RESULT_CHARS + "\n[cut: ")
    assert str(MAX_RESULT_CHARS + 5) in content
