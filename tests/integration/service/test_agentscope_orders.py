"""Every order of the decisions of one step gives the same transcript."""

import dataclasses
import itertools

import pytest

from signoff.domain.message import ToolResult, decode, encode
from tests.integration.service.office import (
    MAIL,
    QUESTION,
    answers,
    calls,
    confirm,
    edited,
    executed,
    result,
    verdict,
)

pytestmark = pytest.mark.anyio

STEP = calls(
    ("allow", "send_email", {**MAIL, "to": "a@acme.com"}),
    ("deny", "send_email", {**MAIL, "to": "b@acme.com"}),
    ("edit", "set_flag", {"key": "k", "value": 1}),
    ("out", "look_up", {"order": "7"}),
    ("ask", "AskUserQuestion", {"questions": [QUESTION]}),
)
NOW = 1_700_000_000_000


async def decided(office, order, *, between):
    """The stored history of a run so decided, and what the model is asked next."""
    run_id = await office.start(STEP, {"text": "{{last_results}}"})
    asked = await office.calls(run_id)
    events = {
        "allow": confirm(run_id, verdict(asked["allow"])),
        "deny": confirm(run_id, verdict(asked["deny"], confirmed=False, reason="not now")),
        "edit": confirm(run_id, verdict(edited(asked["edit"], value=2))),
        "out": executed(run_id, result(asked["out"], "in stock")),
        "ask": executed(run_id, result(asked["ask"], metadata=answers(("Which one?", ["B"])))),
    }
    for n, name in enumerate(order, start=1):
        asked_before = len(office.model.requests)
        answer = await office.send(run_id, events[name], drive=between)
        assert answer.status_code == 200
        assert answer.json()["resumed"] is (n == len(order))
        if n < len(order):
            assert len(office.model.requests) == asked_before
    await office.drive()
    assert await office.world.status(run_id) == "completed"
    request = office.model.requests[-1]
    said = [encode(message) for message in request.messages[1:]]
    rest = dataclasses.replace(request, run_id=0, messages=())
    return await office.history(run_id), said, rest


@pytest.mark.parametrize("fourth", ["out", "ask"])
@pytest.mark.parametrize("between", [True, False], ids=["driven between", "driven at the end"])
async def test_every_order_of_four_decisions_gives_the_same_transcript(office, fourth, between):
    """An allow, a deny with its reason, an edit, a result or an answer: byte for byte."""
    other = {"out": "ask", "ask": "out"}[fourth]
    object.__setattr__(office.engine, "now_ms", lambda: NOW)
    found = [
        await decided(office, (*order, other), between=between)
        for order in itertools.permutations(("allow", "deny", "edit", fourth))
    ]
    assert len(found) == 24
    # The first message was written by the service, whose clock goes on.
    transcripts = [(history[1:], said, rest) for history, said, rest in found]
    assert [item for item in transcripts if item != transcripts[0]] == []
    results = [b for b in decode(transcripts[0][0][1]).blocks if isinstance(b, ToolResult)]
    assert [block.tool_use_id for block in results] == ["allow", "deny", "edit", "out", "ask"]
    assert [block.state for block in results] == ["success", "denied", *["success"] * 3]
