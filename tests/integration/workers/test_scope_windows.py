"""The holder of an AgentScope run dies at every command: no tool twice, no rule or result lost."""

from __future__ import annotations

from collections import Counter

import pytest

from signoff.domain.decision import Decision
from signoff.domain.gate import GateKind
from tests.integration.workers.conftest import Bench
from tests.integration.workers.mortal import life, one_event_per_pause
from tests.integration.workers.test_scope import LOOK, PAY, Scene, scene, turn

pytestmark = pytest.mark.anyio
__all__ = ["scene"]  # the fixture

SCRIPT = [
    turn(PAY, LOOK, text="on it"),
    turn(("p2", "pay", {"to": "bob"}), ("n1", "note", {"text": "hi"})),
    {"text": "all done"},
]


async def settle_all(bench: Bench, run_id: int) -> None:
    """A person accepts the rule of the first payment, denies the note, answers what is unknown."""
    for gate in await bench.gates(run_id):
        if gate.kind in (GateKind.OUTCOME_UNKNOWN, GateKind.EXTERNAL):
            decision = Decision(request_id=gate.id, result={"output": "told"})
        elif gate.tool == "note":
            decision = Decision(request_id=gate.id, verdict="deny", reason="no")
        else:
            decision = Decision(request_id=gate.id, verdict="allow", rules=gate.suggested_rules)
        await bench.decide(run_id, decision)


@pytest.mark.parametrize("arrives", [False, True], ids=["before", "reply-lost"])
async def test_no_death_of_the_holder_loses_or_doubles_anything(
    scene: Scene, *, arrives: bool
) -> None:
    """The saved state and the calls move together, whichever command was the last."""
    at = 0
    while True:
        at += 1
        (scene.folder / "ledger").unlink(missing_ok=True)
        run_id = await scene.bench.create(SCRIPT, model="agent:desk")
        died = await life(scene.bench, run_id, settle_all, at, arrives=arrives)
        counts = Counter(line.split(" ")[0] for line in scene.ledger)
        assert set(counts.values()) <= {1}, (at, scene.ledger)
        results = {r.tool_use_id: r for r in await scene.bench.results(run_id)}
        assert set(results) == {"p1", "x1", "p2", "n1"}, at
        told = {name for name, r in results.items() if r.content == "told"}
        assert {"p1", "p2"} - set(counts) <= told, (at, scene.ledger)
        seen = scene.seen[-1]["results"]
        assert {n: r["text"] for n, r in seen.items() if n != "n1"} == {
            n: r.content for n, r in results.items() if n != "n1"
        }, at
        assert seen["n1"]["text"].endswith("Reason: no"), at
        rules = (await scene.state(run_id))["permission_context"]["allow_rules"]["pay"]
        assert len(rules) == 1, at
        await one_event_per_pause(scene.bench.store, run_id)
        if not died:
            break
    assert at > 8
