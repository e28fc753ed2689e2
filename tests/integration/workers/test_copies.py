"""What a holder keeps of a run is a copy: how news reach it, and which reads are too old for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from signoff.domain.call import CallState
from tests.integration.workers.conftest import Bench, calls
from workers.drain import Drainer
from workers.driver import Driver

pytestmark = pytest.mark.anyio

RESULT = {"state": "success", "content": "done"}


async def held(bench: Bench) -> Driver:
    """The driver of a run whose first step is committed: one allowed call, the lease kept."""
    await bench.create([calls(("a", "send", {"what": "x"})), {"text": "end"}], mode="autonomous")
    (taken,) = await bench.take()
    driver = Driver(bench.engine, taken)
    driver.tools = await bench.engine.tools.of(driver.run)
    assert not await driver._ask()
    assert [call.state for call in driver.calls] == [CallState.ALLOWED]
    return driver


async def test_a_read_that_is_behind_takes_no_result_back(bench: Bench) -> None:
    """A call that ended here stays ended, whatever a read says that began before its commit."""
    driver = await held(bench)
    driver.calls[0] = replace(driver.calls[0], state=CallState.DONE, result=RESULT)
    await driver.refresh()
    assert (driver.calls[0].state, driver.calls[0].result) == (CallState.DONE, RESULT)


async def test_a_slower_read_of_an_older_revision_is_dropped(bench: Bench) -> None:
    """Of two reads the one of the later revision counts, in whatever order they end."""
    driver = await held(bench)
    await driver.refresh()
    newest = replace(driver.run, rev=str(int(driver.run.rev) + 1), plan_approved=True)
    driver.run = newest
    await driver.refresh()
    assert driver.run is newest


async def test_a_renewal_tells_the_driver_of_a_wake_it_missed(bench: Bench) -> None:
    """Wake-ups of the store may be lost: the next heartbeat finds the counter moved."""
    driver = await held(bench)
    drainer = Drainer(bench.engine, name="test", slots=4)
    drainer._drivers[driver.run.id] = driver
    await drainer._renew(0, [driver])
    assert not driver.nudge.is_set()
    driver.run = replace(driver.run, wake=str(int(driver.run.wake) - 1))
    await drainer._renew(0, [driver])
    assert driver.nudge.is_set()
