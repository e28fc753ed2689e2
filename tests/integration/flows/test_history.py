"""What the model is asked, whatever was decided meanwhile, and what keeping it costs."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import pytest

from signoff.domain.message import ToolUse, block_json
from tests.integration.flows.conftest import Flow, calls, question, ran, results, send, spoken
from tests.integration.sequences.strict import refused_on_the_wire, unpaired
from tests.provider_wire import Wire, provider_wire, streamed, tool_delta
from workers.model.port import Count, Model, ModelReply, ModelRequest, OnText, Usage
from workers.model.provider import ProviderModel, _history

pytestmark = pytest.mark.anyio
END = {"text": "{{last_results}}"}
STEPS = 50


async def test_calls_and_results_alternate_over_a_restart(flow: Flow) -> None:
    """Two free steps, then a gated one, decided in front of a new process: pair after pair."""
    run_id = await flow.create(
        [
            calls(("a", "look", {"what": "1"})),
            calls(("b", "look", {"what": "2"})),
            calls(send("c")),
            END,
        ]
    )
    await flow.drive()
    await flow.restart()
    await flow.allow(run_id, await flow.one(run_id))
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    last = flow.model.asked[-1]
    assert spoken(last.messages) == ["+a", "-a", "+b", "-b", "+c", "-c"]
    assert unpaired(last.messages) == refused_on_the_wire(_history(last)) == []
    assert ran() == ["a", "b", "c"]


class OverTheWire:
    """The real adapter under the name that the run was made with."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        asked = replace(request, model="openai:gpt-x")
        return await self._model.reply(asked, on_text=on_text, count=count)


def _calls(wire: Wire, *ids: str) -> None:
    deltas = [
        tool_delta(n, json.dumps({"what": name}), id=name, name="send")
        for n, name in enumerate(ids)
    ]
    wire.turns.append(streamed(*deltas, finish="tool_calls"))


async def test_two_gates_in_a_row_are_answered_once_each_on_the_wire(flow: Flow) -> None:
    """The provider gets every call back with one result, and nothing of our own ids."""
    with provider_wire() as wire:
        _calls(wire, "c1", "c2")
        _calls(wire, "c3")
        wire.turns.append(streamed({"content": "done"}))
        provider = ProviderModel(openai_api_key="sk-test", openai_base_url=wire.url)
        flow.speak(OverTheWire(provider))
        run_id = await flow.create()
        await flow.drive()
        first, second = await flow.pending(run_id)
        await flow.deny(run_id, second, reason="no need")
        await flow.drive()
        await flow.restart()
        await flow.allow(run_id, first)
        await flow.drive()
        await flow.allow(run_id, await flow.one(run_id), input={"what": "edited"})
        await flow.restart()
        await flow.drive()
        assert await flow.status(run_id) == "completed"
        await provider.aclose()
    sent = [request["messages"] for request in wire.requests]
    answered = [[m["tool_call_id"] for m in one if m["role"] == "tool"] for one in sent]
    assert answered == [[], ["c1", "c2"], ["c1", "c2", "c3"]]
    by_id = {m["tool_call_id"]: m["content"] for m in sent[-1] if m["role"] == "tool"}
    assert "no need" in by_id["c2"]
    assert "edited" in by_id["c3"]
    assert "req_" not in json.dumps(wire.requests)


async def test_a_denial_reaches_the_model_after_a_restart(flow: Flow) -> None:
    """Denied, restarted, continued: the run completes, and the model reads the denial."""
    run_id = await flow.create([calls(send("a")), END, END])
    await flow.drive()
    await flow.deny(run_id, await flow.one(run_id))
    await flow.restart()
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    await flow.restart()
    await flow.say(run_id, "go on")
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    (result,) = results(flow.model.asked[-1])
    assert (result.state, "denied" in result.content) == ("denied", True)
    assert unpaired(flow.model.asked[-1].messages) == []


async def test_no_request_id_is_told_to_the_model(flow: Flow) -> None:
    """Of every kind of request and decision the model reads calls and results, never our ids."""
    run_id = await flow.create(
        [
            {"plan": "p"},
            calls(send("a"), send("b"), ("q", "AskUserQuestion", question())),
            calls(send("c", "another")),
            END,
        ],
        permission_mode="plan",
    )
    await flow.drive()
    ids = [(await flow.one(run_id))["request_id"]]
    await flow.answer(run_id, {"Plan Approval": "Approve"})
    await flow.drive()
    first, second, asked = await flow.pending(run_id)
    ids += [gate["request_id"] for gate in (first, second, asked)]
    await flow.allow(run_id, first)
    await flow.deny(run_id, second)
    await flow.answer(run_id, {"Which?": "B"})
    await flow.drive()
    last = await flow.one(run_id)
    await flow.allow(run_id, last, input={"what": "y"})
    await flow.drive()
    told = repr([_history(request) for request in flow.model.asked])
    assert len(flow.model.asked) == 4
    assert not [name for name in (*ids, last["request_id"], "req_") if name in told]


HOSTILE = "{{7*7}} ${x} {{last_results}} {{message}} <b>&lt;\u202e\U0001f9e8\x1b[31m\r\n\t%s"


async def test_an_answer_reaches_the_model_as_it_was_typed(flow: Flow) -> None:
    """Templates, markup, control and direction marks, and 100 kB: nothing is read into them."""
    typed = HOSTILE + "é" * 50_000
    run_id = await flow.create([calls(("q", "AskUserQuestion", question())), calls(send("a")), END])
    await flow.drive()
    await flow.answer(run_id, {"Which?": typed})
    await flow.restart()
    await flow.drive()
    await flow.deny(run_id, await flow.one(run_id), reason=HOSTILE)
    await flow.drive()
    answered, denied = results(flow.model.asked[-1])
    assert json.loads(answered.content)["answers"][0]["answer"] == typed
    assert denied.content.endswith(HOSTILE)
    (asked, _) = await flow.gates(run_id)
    assert asked["tool_input"]["answers"] == {"Which?": typed}


async def test_results_of_allowed_calls_follow_a_pause(flow: Flow) -> None:
    """Behind a pause, calls that a rule allows come one after the other: both are told."""
    await flow.post("/v1/permissions/", tool="put", effect="allow")
    run_id = await flow.create(
        [
            calls(send("gated")),
            calls(("p1", "put", {"what": "1"}), ("p2", "put", {"what": "2"})),
            calls(("p3", "put", {"what": "3"})),
            END,
        ]
    )
    await flow.drive()
    await flow.allow(run_id, await flow.one(run_id))
    await flow.drive()
    assert ran() == ["gated", "p1", "p2", "p3"]
    contents = {r.tool_use_id: r.content for r in results(flow.model.asked[-1])}
    assert contents == {name: f"did {name}" for name in ran()}


class Chatty:
    """Each answer is about a kilobyte, with one call; a turn has fifty of them."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        del count
        answers = [m for m in request.messages if m.role == "assistant" and m.turn == request.turn]
        text = self._random.randbytes(400).hex()
        await on_text(text)
        tool_input = {"what": self._random.randbytes(100).hex()}
        use = ToolUse(f"c{request.turn}_{len(answers)}", "look", tool_input)
        return ModelReply(
            text=text,
            tool_calls=(use,) if len(answers) < STEPS else (),
            usage=Usage(input_tokens=1, output_tokens=1),
        )


async def _kept(flow: Flow) -> int:
    """All that the store holds, in bytes."""
    connection = flow.store.connection
    names = await connection.call("KEYS", "*")
    sizes: list[int] = [await connection.call("MEMORY", "USAGE", name) for name in names]
    return sum(sizes)


async def _written(flow: Flow) -> int:
    """The length of the append-only file."""
    told = (await flow.store.connection.call("INFO", "persistence")).decode()
    return int(told.split("aof_current_size:")[1].split()[0])


async def test_a_long_run_costs_what_it_says_and_not_its_square(flow: Flow) -> None:
    """Four hundred messages: less than three times the history is kept, and each turn as much."""
    flow.speak(Chatty())
    # A rewrite of the file in between would say nothing about the run.
    await flow.store.connection.call("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
    run_id = await flow.create()
    kept, written = [await _kept(flow)], [await _written(flow)]
    for _ in range(4):
        await flow.drive()
        kept.append(await _kept(flow))
        written.append(await _written(flow))
        await flow.say(run_id, "more")
    history = await flow.store.runs.history(run_id)
    said = sum(len(json.dumps([block_json(block) for block in m.blocks])) for m in history)
    assert len(history) > 4 * 2 * STEPS
    assert kept[-1] < 3 * said
    for series in (kept, written):
        grown = [after - before for before, after in itertools.pairwise(series)]
        assert max(grown) < 1.3 * min(grown), (series, grown)
