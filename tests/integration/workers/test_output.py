"""Runs that owe a structured answer: accepted, asked for again, failed; never an unpaired call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signoff.domain import event as events
from signoff.domain.decision import Decision
from signoff.domain.message import Message, Text, ToolResult, ToolUse
from signoff.store.records import RunRecord
from signoff.store.turns import Announcement, NewTurn
from tests.integration.workers.conftest import Bench, calls

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["total"],
    "additionalProperties": False,
}
GOOD = {"total": 3}
TEXT = {"text": '{"total": 3, "note": "caf\u00e9"}'}


def submit(value: dict[str, Any], call: str = "o1") -> dict[str, Any]:
    return calls((call, "SubmitOutput", value))


async def driven(bench: Bench, script: list[dict[str, Any]], **options: Any) -> RunRecord:
    run_id = await bench.create(script, output_schema=SCHEMA, **options)
    await bench.drive()
    return await bench.store.runs.load("1", run_id)


async def paired(bench: Bench, run_id: int) -> list[ToolResult]:
    """All results of the run, after a check that each call has exactly its own, right behind it."""
    history = await bench.store.runs.history(run_id)
    found: list[ToolResult] = []
    for message, following in zip(history, [*history[1:], None], strict=True):
        uses = [block.id for block in message.blocks if isinstance(block, ToolUse)]
        if message.role == "assistant" and uses:
            assert following is not None
            results = [b for b in following.blocks if isinstance(b, ToolResult)]
            assert [result.tool_use_id for result in results] == uses
            found += results
    return found


async def ended(bench: Bench, run_id: int) -> dict[str, Any]:
    """The data of the run's last event, as endpoints get it."""
    connection = bench.store.runs._connection
    rows = [
        await connection.call("HGET", key, "body") for key in await connection.call("KEYS", "*ev:*")
    ]
    found = [json.loads(row) for row in rows if row]
    (event,) = [
        item["data"]
        for item in found
        if item["type"] in ("run.completed", "run.failed") and item["data"]["run_id"] == run_id
    ]
    return dict(event)


async def reply(bench: Bench, run: RunRecord) -> None:
    publisher = bench.engine.publisher
    said = Message(role="user", blocks=(Text("more"),), turn=run.turn + 1, step=run.step)
    event = publisher.run_event(run, events.RUN_MESSAGE_RECEIVED, status="running")
    fanout = await publisher.fanout(run, events.RUN_MESSAGE_RECEIVED)
    turn = NewTurn(
        message_id=await bench.store.turns.next_message_id(),
        messages=[said],
        announcements=[Announcement(event=event, fanout=fanout)],
    )
    await bench.store.turns.start(run, turn, queued=False)


async def test_an_output_given_by_the_tool_completes_the_run(bench: Bench) -> None:
    """It is the run's data and, without words beside it, its text."""
    run = await driven(bench, [submit(GOOD)])
    assert (run.status, run.output_data) == ("completed", GOOD)
    assert json.loads(run.output or "") == GOOD
    (result,) = await paired(bench, run.id)
    assert result.state == "success"
    told = await ended(bench, run.id)
    assert (told["output_data"], told["output"]) == (GOOD, run.output)


async def test_an_output_in_words_that_are_json_is_as_good(bench: Bench) -> None:
    """Models without a turn for tools, and scripts."""
    run = await driven(bench, [TEXT])
    assert (run.status, run.output_data) == ("completed", {"total": 3, "note": "caf\u00e9"})
    assert run.output == TEXT["text"]


async def test_a_code_fence_around_the_output_does_not_count(bench: Bench) -> None:
    """Models put JSON into one; the text stays as it was said."""
    fenced = f"```json\n{TEXT['text']}\n```"
    run = await driven(bench, [{"text": fenced}])
    assert (run.status, run.output_data) == ("completed", {"total": 3, "note": "caf\u00e9"})
    assert run.output == fenced


async def test_an_output_that_does_not_fit_is_asked_for_again(bench: Bench) -> None:
    """The model is told what is wrong, in the way in which it answered."""
    run = await driven(bench, [{"text": "Three."}, submit({"total": "3"}), submit(GOOD, "o2")])
    assert (run.status, run.output_data) == ("completed", GOOD)
    refused, accepted = await paired(bench, run.id)
    assert (refused.state, accepted.state) == ("error", "success")
    assert refused.content == 'Invalid output: total: the value is not of type "integer".'
    history = await bench.store.runs.history(run.id)
    assert " ".join(message.role for message in history) == (
        "user assistant user assistant tool assistant tool"
    )
    said = [message.text for message in history if message.role == "user"]
    assert len(said) == 2
    assert "SubmitOutput" in said[1]
    assert run.turn_steps == 3


async def test_the_third_answer_that_does_not_fit_fails_the_run(bench: Bench) -> None:
    """Twice it is asked again, whatever the ways; the last call has its result, too."""
    for last in ({"text": "Four."}, submit({"sum": 3}, "o2")):
        run = await driven(bench, [{"text": "Three."}, submit({"total": "3"}), last])
        assert (run.status, run.error_code) == ("failed", "output_invalid")
        assert run.output_data is None
        results = await paired(bench, run.id)
        assert {result.state for result in results} == {"error"}
        assert (await ended(bench, run.id))["error_code"] == "output_invalid"
    assert "sum: is not a field" in (run.error or "")


async def test_an_output_beside_other_calls_waits_for_their_results(bench: Bench) -> None:
    """The other calls are judged as ever, and nothing of them is cut off."""
    both = calls(("c1", "send", {"what": "x"}), ("o1", "SubmitOutput", GOOD))
    run = await driven(bench, [both, submit(GOOD, "o2")])
    assert run.status == "awaiting_approval"
    (gate,) = await bench.gates(run.id)
    await bench.decide(run.id, Decision(request_id=gate.id, verdict="allow"))
    await bench.drive()
    run = await bench.store.runs.load("1", run.id)
    assert (run.status, run.output_data) == ("completed", GOOD)
    states = [result.state for result in await paired(bench, run.id)]
    assert states == ["success", "error", "success"]
    assert bench.log == ["c1:x*1"]


async def test_calls_beside_the_last_answer_are_not_run(bench: Bench) -> None:
    """The turn fails with the answer; its other calls are cut off, not forgotten."""
    both = calls(("c1", "put", {"what": "x"}), ("o1", "SubmitOutput", GOOD))
    run = await driven(bench, [{"text": "1"}, {"text": "2"}, both], mode="autonomous")
    assert (run.status, run.error_code) == ("failed", "output_invalid")
    assert [result.state for result in await paired(bench, run.id)] == ["interrupted", "error"]
    assert bench.log == []


async def test_without_a_schema_the_tool_does_not_exist(bench: Bench) -> None:
    """And JSON is words."""
    run_id = await bench.create([submit(GOOD), TEXT])
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.output_data, run.output) == ("completed", None, TEXT["text"])
    assert "output_data" not in await ended(bench, run_id)
    (result,) = await paired(bench, run_id)
    assert "no tool called" in result.content


async def test_each_turn_may_ask_again_as_often(bench: Bench) -> None:
    """What an earlier turn was refused does not count in the next."""
    script = [{"text": "1"}, {"text": "2"}, submit(GOOD), {"text": "3"}, {"text": "4"}, TEXT]
    run = await driven(bench, script)
    assert run.output_data == GOOD
    await reply(bench, run)
    await bench.drive()
    run = await bench.store.runs.load("1", run.id)
    assert (run.status, run.turn) == ("completed", 2)
    assert run.output_data == {"total": 3, "note": "caf\u00e9"}


async def test_a_run_that_runs_again_shows_no_old_output(bench: Bench) -> None:
    """The data are those of a completed run, as its text is."""
    run = await driven(bench, [TEXT, calls(("c1", "send", {"what": "x"}))])
    assert run.output_data
    await reply(bench, run)
    await bench.drive()
    assert (await bench.store.runs.load("1", run.id)).output_data is None
