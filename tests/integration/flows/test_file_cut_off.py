"""The server dies in the middle of a write: whatever its file ends with is one whole state."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from signoff.supervise.embedded import find_binary
from tests.conftest import _say
from tests.integration.flows.conftest import Flow, calls, flowing, question, send

pytestmark = pytest.mark.anyio
END = {"text": "{{last_results}}"}
CUTS = 24
P = "sg:{s0}:"


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server on the files in ``folder``; it ends as by kill -9."""
    path = folder / "s"
    options = {
        "--port": "0",
        "--unixsocket": str(path),
        "--dir": str(folder),
        "--save": "",
        "--appendonly": "yes",
        "--maxmemory-policy": "noeviction",
        "--loglevel": "warning",
    }
    command: list[str] = [
        str(find_binary(None)),
        *(part for pair in options.items() for part in pair),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not _up(path):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield f"unix://{path}?db=0"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        path.unlink(missing_ok=True)


def _up(path: Path) -> bool:
    try:
        return _say(path, b"PING\r\n").startswith(b"+PONG")
    except OSError:
        return False


async def _busy(flow: Flow) -> None:
    """Runs in every state: parked, decided, at work, over; a rule, an endpoint."""
    every = ["run.started", "run.awaiting_input", "run.resumed", "run.completed", "run.cancelled"]
    await flow.post("/v1/webhooks/", url="https://example.com/hook", events=every)
    script = [
        calls(send("a"), ("q", "AskUserQuestion", question())),
        calls(send("b"), ("l", "look", {"what": "x"})),
        END,
    ]
    ids = [await flow.create(script, user_id="u")]
    ids += [await flow.create(script) for _ in range(2)]
    await flow.drive()
    for run_id in ids:
        await flow.allow(run_id, (await flow.pending(run_id))[0], remember=run_id == ids[0])
        await flow.answer(run_id, {"Which?": "B"})
        await flow.drive()
    await flow.deny(ids[1], await flow.one(ids[1]))
    await flow.api.post(f"/v1/runs/{ids[2]}/cancel")
    await flow.say(ids[1], "more")
    await flow.create(script)
    await flow.drive()


async def _all(flow: Flow, what: str) -> list[tuple[str, dict[str, str]]]:
    """The hashes of that kind, by the rest of their name."""
    call, found = flow.store.connection.call, []
    for key in sorted(await call("KEYS", f"{P}{what}:*")):
        flat = [part.decode() for part in await call("HGETALL", key)]
        found.append(
            (key.decode().split(":", 3)[-1], dict(zip(flat[::2], flat[1::2], strict=True)))
        )
    return found


async def _problems(flow: Flow) -> list[str]:
    """What no state may be."""
    gates = await _all(flow, "gate")
    found = [
        problem
        for run_id, run in await _all(flow, "run")
        for problem in await _run_problems(flow, run_id, run, gates)
    ]
    audited = Counter(
        row[1][row[1].index(b"request") + 1].decode()
        for row in await flow.store.connection.call("XRANGE", f"{P}audit:1", "-", "+")
        if row[1][1] == b"decision"
    )
    found += [
        f"gate {name}: {gate['state']}, audited {audited[name]} times"
        for name, gate in gates
        if audited[name] != (gate["state"] in ("allowed", "denied"))
    ]
    return found + await _event_problems(flow)


async def _run_problems(
    flow: Flow, run_id: str, run: dict[str, str], gates: list[tuple[str, dict[str, str]]]
) -> list[str]:
    call = flow.store.connection.call
    pending = {n for n, gate in gates if gate["run"] == run_id and gate["state"] == "pending"}
    inbox = {row.decode() for row in await call("ZRANGE", f"{P}open:1", 0, -1)}
    queued = {row.decode() for row in await call("ZRANGE", f"{P}ready", 0, -1)}
    queued |= {row.decode() for row in await call("ZRANGE", f"{P}leases", 0, -1)}
    pauses = sorted(
        int(event["body"].split('"pause":')[1].split(",")[0])
        for _, event in await _all(flow, "ev")
        if (event["type"], event["run"]) == ("run.awaiting_input", run_id)
    )
    holds = {
        "as many gates are open as it says": len(pending) == int(run["open"]),
        "it waits if and only if one is": (run["status"] == "awaiting_approval") == bool(pending),
        "the inbox has these": {row for row in inbox if row.startswith(f"{run_id}:")}
        == {f"{run_id}:{gate}" for gate in pending},
        "each pause is told once": pauses == list(range(1, int(run["pause_n"]) + 1)),
        "its messages are there": await call("LLEN", f"{P}msg:{run_id}") == int(run["msgs"]),
        "somebody will come for it": run["status"] != "running" or run_id in queued,
    }
    return [f"run {run_id}, not so: {what}" for what, so in holds.items() if not so]


async def _event_problems(flow: Flow) -> list[str]:
    found = []
    for name, event in await _all(flow, "ev"):
        first, count, step = (int(event.get(k, "0")) for k in ("dfirst", "dcount", "dstep"))
        made = [f"{P}dlv:{first + n * step}" for n in range(count)]
        if made and await flow.store.connection.call("EXISTS", *made) != count:
            found.append(f"event {name}: a delivery is missing")
        if event["run"] and not event.get("body"):
            found.append(f"event {name}: it has no body")
    return found


async def _to_the_end(flow: Flow) -> None:
    """Leases of the dead run out, and everybody does what is asked of them."""
    for run_id in await flow.store.connection.call("ZRANGE", f"{P}leases", 0, -1):
        await flow.lose(int(run_id))
    for _ in range(20):
        await flow.drive()
        inbox = (await flow.api.get("/v1/requests?limit=100")).json()["data"]
        if not inbox:
            break
        for gate in inbox:
            if gate["kind"] == "question":
                await flow.answer(gate["run_id"], {"Which?": "A"}, request_id=gate["request_id"])
            else:
                await flow.deny(gate["run_id"], gate)
    page = (await flow.api.get("/v1/runs/?limit=100")).json()["data"]
    assert {row["status"] for row in page} <= {"completed", "cancelled"}


async def test_a_file_that_ends_anywhere_is_one_whole_state() -> None:
    """No pause without its event, no decision without its audit entry; and every run goes on."""
    with tempfile.TemporaryDirectory(prefix="sgf-") as temporary:
        folder = Path(temporary) / "0"
        folder.mkdir()
        with server(folder) as url:
            async with flowing(url) as flow:
                start = _file(folder).stat().st_size
                await _busy(flow)
                assert await _problems(flow) == []
        end = _file(folder).stat().st_size
        rng = random.Random(7)
        for n, cut in enumerate(sorted(rng.sample(range(start, end), CUTS)), 1):
            copy = folder.with_name(str(n))
            shutil.copytree(folder, copy)
            with _file(copy).open("r+b") as file:
                file.truncate(cut)
            with server(copy) as url:
                async with flowing(url) as flow:
                    assert await _problems(flow) == [], f"cut at {cut} of {start} to {end}"
                    await _to_the_end(flow)
                    assert await _problems(flow) == [], f"after a cut at {cut}"
            shutil.rmtree(copy)


def _file(folder: Path) -> Path:
    (found,) = (folder / "appendonlydir").glob("*.incr.aof")
    return found


async def test_a_decision_on_what_was_never_written_is_refused(redis_url: str) -> None:
    """A request that a lost second took along is unknown; the run asks again under another id."""
    async with flowing(redis_url) as flow:
        run_id = await flow.create([calls(send("a")), END])
        before: Any = await flow.store.connection.call("DUMP", f"{P}run:{run_id}")
        await flow.drive()
        gate = await flow.one(run_id)
        for key in await flow.store.connection.call("KEYS", f"{P}*"):
            if key.decode() not in (f"{P}run:{run_id}", f"{P}msg:{run_id}"):
                await flow.store.connection.call("DEL", key)
        await flow.store.connection.call("RESTORE", f"{P}run:{run_id}", 0, before, "REPLACE")
        await flow.store.connection.call("LTRIM", f"{P}msg:{run_id}", 0, 0)
        await flow.store.connection.call("ZADD", f"{P}ready", 1, str(run_id))
        await flow.restart()
        late = await flow.decide(run_id, gate)
        assert (late.status_code, late.json()["error"]["error_code"]) == (404, "gate_not_found")
        await flow.drive()
        assert (await flow.one(run_id))["request_id"] != gate["request_id"]
