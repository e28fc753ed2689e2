"""A holder dies at every single command it sends: before it arrives, or with its reply lost."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from signoff.domain.decision import Decision
from signoff.domain.error import LeaseLostError
from signoff.domain.gate import Gate, GateKind
from signoff.store.facade import Store
from tests.integration.workers.conftest import Bench, calls
from workers.driver import Driver

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


class Died(BaseException):
    """The process is gone; nothing after this runs."""


class Mortal:
    """The holder's scripts; the one numbered ``at`` is its last."""

    def __init__(self, scripts: Any, at: int, *, arrives: bool) -> None:
        self._scripts = scripts
        self._at = at
        self._arrives = arrives
        self.sent = 0

    async def run(self, *args: Any) -> Any:
        self.sent += 1
        if self.sent > self._at:
            raise Died
        if self.sent < self._at:
            return await self._scripts.run(*args)
        if self._arrives:
            await self._scripts.run(*args)
        raise Died


async def expire(store: Store, run_id: int) -> None:
    """The lease of a dead holder runs out."""
    for command in (
        ("HSET", f"sg:{{s0}}:run:{run_id}", "lease_until", "1"),
        ("ZADD", "sg:{s0}:leases", "XX", 1, str(run_id)),
    ):
        await store.connection.call(*command)
    await store.steps.sweep(0)


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


async def life(bench: Bench, at: int, *, arrives: bool) -> tuple[int, bool]:
    """Drives a run to its end through a death at command ``at``; (run, whether it came to that)."""
    run_id = await bench.create(SCRIPT)
    mortal = Mortal(bench.store.steps._scripts, at, arrives=arrives)
    died = False
    for _ in range(30):
        if await bench.status(run_id) == "completed":
            return run_id, died
        for held in await bench.take():
            alive = bench.store.steps._scripts
            if not died:
                bench.store.steps._scripts = cast("Any", mortal)
            try:
                await Driver(bench.engine, held).drive()
            except Died:
                died = True
            except LeaseLostError:
                pass
            finally:
                bench.store.steps._scripts = alive
        if died:
            await expire(bench.store, run_id)
        await settle_all(bench, run_id)
    raise AssertionError(f"the run does not end after a death at {at}")


@pytest.mark.parametrize("arrives", [False, True], ids=["before", "reply-lost"])
async def test_no_death_of_the_holder_loses_or_doubles_anything(
    bench: Bench, log: list[str], *, arrives: bool
) -> None:
    """Whatever command was its last: the run completes, effects ran at most once, pauses once."""
    at = 0
    while True:
        at += 1
        log.clear()
        run_id, died = await life(bench, at, arrives=arrives)
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


async def one_event_per_pause(store: Store, run_id: int) -> None:
    """The account's event log names each pause of the run exactly once."""
    ids = await store.connection.call("ZRANGE", "sg:{s0}:evs:1", 0, -1)
    pauses: Counter[int] = Counter()
    for event_id in ids:
        kind, body, run = await store.connection.call(
            "HMGET", f"sg:{{s0}}:ev:{event_id.decode()}", "type", "body", "run"
        )
        if kind == b"run.awaiting_input" and run.decode() == str(run_id):
            pauses[int(body.decode().split('"pause":')[1].split(",")[0])] += 1
    assert set(pauses.values()) <= {1}, pauses
    assert sorted(pauses) == list(range(1, len(pauses) + 1))
