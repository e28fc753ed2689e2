"""A holder dies at every single command it sends: before it arrives, or with its reply lost."""

from __future__ import annotations

from collections import Counter

import pytest

from signoff.domain.decision import Decision
from signoff.domain.gate import Gate, GateKind
from tests.integration.workers.conftest import Bench, calls
from tests.integration.workers.mortal import life, one_event_per_pause

pytestmark = pytest.mark.anyio

ASK = {
    "questions": [
        {"question": "Go?", "header": "H", "options": [{"label": "Yes"}, {"label": "No"}]}
    ]
}
SCRIPT = [
    calls(
        ("free", "look", {"what": "r"}),
        ("a", "send", {"what": "a"}),
        ("b", "send", {"what": "b"}),
        ("q", "AskUserQuestion", ASK),
    ),
    calls(("p", "put", {"what": "p"}), ("c", "send", {"what": "c"})),
    {"text": "{{last_results}}"},
]


async def settle_all(bench: Bench, run_id: int) -> list[Gate]:
    """A person answers everything that is open; an unknown outcome is said to have worked."""
    gates = await bench.gates(run_id)
    for gate in gates:
        if gate.kind is GateKind.QUESTION:
            decision = Decision(request_id=gate.id, answers={"Go?": "Yes"})
        elif gate.kind is GateKind.OUTCOME_UNKNOWN:
            decision = Decision(request_id=gate.id, result={"output": "it worked"})
        else:
            decision = Decision(request_id=gate.id, verdict="allow")
        await bench.decide(run_id, decision)
    return gates


@pytest.mark.parametrize("arrives", [False, True], ids=["before", "reply-lost"])
async def test_no_death_of_the_holder_loses_or_doubles_anything(
    bench: Bench, log: list[str], *, arrives: bool
) -> None:
    """Whatever command was its last: the run completes, effects ran at most once, pauses once."""
    at = 0
    while True:
        at += 1
        log.clear()
        run_id = await bench.create(SCRIPT)
        died = await life(bench, run_id, settle_all, at, arrives=arrives)
        counts = Counter(log)
        once = {name: n for name, n in counts.items() if name[0] in "abc"}
        assert all(n == 1 for n in once.values()), (at, log)
        assert counts["free:r"] >= 1, (at, log)
        assert counts["p:p"] >= 1, (at, log)
        results = await bench.results(run_id)
        assert [r.tool_use_id for r in results] == ["free", "a", "b", "q", "p", "c"], at
        # What did not run has been said by the person, never by chance.
        told = {r.tool_use_id for r in results if r.content == "it worked"}
        assert {"a", "b", "c"} - {name[0] for name in once} <= told, (at, log)
        await one_event_per_pause(bench.store, run_id)
        if not died:
            break
    assert at > 12
