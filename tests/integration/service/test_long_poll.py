"""GET /runs/{id} with wait_s: it answers when what the run shows has changed."""

import asyncio
import time

import pytest

from service.watch import Watch

pytestmark = pytest.mark.anyio

PATIENCE_S = 20


async def _poll(world, run_id, **query):
    answer = await world.api.get(
        f"/v1/runs/{run_id}", params={"wait_s": PATIENCE_S, **query}, timeout=PATIENCE_S + 5
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _waiting(world, run_id):
    """Ends when somebody waits for the run."""
    while str(run_id) not in world.context.watch._waiting:
        await asyncio.sleep(0.005)


async def _listeners(world):
    return (await world.store.connection.call("PUBSUB", "NUMSUB", "sg:{s0}:shown"))[1]


async def test_a_poll_answers_when_a_gate_opens(world):
    """The version of the create is known; the pause is told at once, with another version."""
    run_id = await world.run(human_in_the_loop=True)
    known = (await world.api.get(f"/v1/runs/{run_id}")).json()["version"]
    poll = asyncio.create_task(_poll(world, run_id, known=known))
    await _waiting(world, run_id)
    await world.park(run_id, ("send_email", {"to": "a@acme.com", "subject": "", "body": ""}))
    async with asyncio.timeout(PATIENCE_S / 2):
        seen = await poll
    assert (seen["status"], seen["open_requests"]) == ("awaiting_approval", 1)
    assert seen["version"] != known


async def test_a_poll_answers_when_one_of_several_gates_is_decided(world):
    """The status is the same, the set of open gates is not."""
    mail = ("send_email", {"to": "a@acme.com", "subject": "", "body": ""})
    run_id, gates = await world.parked(mail, mail)
    known = (await world.api.get(f"/v1/runs/{run_id}")).json()["version"]
    poll = asyncio.create_task(_poll(world, run_id, known=known))
    await _waiting(world, run_id)
    await world.api.post(
        f"/v1/runs/{run_id}/approve",
        json={"request_id": gates[0]["request_id"], "decision": "deny"},
    )
    async with asyncio.timeout(PATIENCE_S / 2):
        seen = await poll
    assert (seen["status"], seen["open_requests"]) == ("awaiting_approval", 1)


async def test_what_is_known_already_changed_is_answered_at_once(world):
    """A version or a status that is not the run's makes no client wait."""
    run_id = await world.run()
    async with asyncio.timeout(PATIENCE_S / 2):
        for known in ("0.running.0.0", "awaiting_approval"):
            assert (await _poll(world, run_id, known=known))["status"] == "running"


async def test_a_poll_ends_when_its_time_is_up(world):
    """Nothing changes: the run as it stands, after the time asked for."""
    run_id = await world.run()
    started = time.monotonic()
    seen = await _poll(world, run_id, known="running", wait_s=1)
    assert seen["status"] == "running"
    assert time.monotonic() - started >= 0.9


async def test_a_leaving_process_answers_whoever_waits(world):
    """The shutdown does not wait for long polls."""
    run_id = await world.run()
    poll = asyncio.create_task(_poll(world, run_id))
    await _waiting(world, run_id)
    world.context.watch.release()
    async with asyncio.timeout(PATIENCE_S / 2):
        assert (await poll)["status"] == "running"


async def test_many_waiters_share_one_listener(world):
    """A hundred polls of one process listen over one connection."""
    run_id = await world.run()
    polls = [asyncio.create_task(_poll(world, run_id)) for _ in range(100)]
    while len(world.context.watch._waiting.get(str(run_id), ())) < 100:
        await asyncio.sleep(0.005)
    async with asyncio.timeout(PATIENCE_S / 2):
        while await _listeners(world) == 0:
            await asyncio.sleep(0.005)
    assert await _listeners(world) == 1
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    async with asyncio.timeout(PATIENCE_S / 2):
        assert {run["status"] for run in await asyncio.gather(*polls)} == {"cancelled"}


async def test_a_lost_wake_up_is_noticed_all_the_same(world):
    """Without any word from the store a waiter looks by itself."""

    class Deaf:
        async def listen(self, _heard):
            await asyncio.Event().wait()

    run_id = await world.run()
    account = await world.store.accounts.ensure("one")
    watch = Watch(Deaf())

    async def load():
        return await world.store.runs.load(account, run_id)

    run = await world.store.runs.load(account, run_id)
    waiting = asyncio.create_task(watch.changed(load, run, "running", wait_s=PATIENCE_S))
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    async with asyncio.timeout(PATIENCE_S / 2):
        assert (await waiting).status == "cancelled"
    await watch.close()


@pytest.mark.parametrize("wait_s", ["31", "-1", "1.5", "x"])
async def test_a_wait_of_another_form_is_refused(world, wait_s):
    """Whole seconds from 0 to 30."""
    run_id = await world.run()
    refused = await world.api.get(f"/v1/runs/{run_id}", params={"wait_s": wait_s})
    assert (refused.status_code, refused.json()["error"]["error_code"]) == (422, "validation_error")


async def test_another_account_cannot_wait(world):
    """The run is missing for others, at once."""
    run_id = await world.run()
    answer = await world.other.get(f"/v1/runs/{run_id}", params={"wait_s": PATIENCE_S})
    assert answer.status_code == 404


async def test_a_run_that_is_over_is_not_waited_for_unasked(world):
    """Without ``known`` nothing more is to be expected of it, so the answer is there at once."""
    run_id = await world.run()
    assert (await world.api.post(f"/v1/runs/{run_id}/cancel")).status_code == 200
    answer = await asyncio.wait_for(_poll(world, run_id), PATIENCE_S / 2)
    assert answer["status"] == "cancelled"
