"""The bare minimum: the store's scripts, raw HTTP and HMAC in one process, and nothing else.

Not the product and not durable beyond its scripts: no authentication, no validation, no
idempotency keys, no Celery, no Starlette, no pydantic, no lease renewal, no retries. It speaks
enough of the API that the same load generator drives both.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop
from http1 import Client, Peer, header, request, response
from receiver import signature
from wakeup import Loop

from signoff.canonical import canonical, digest
from signoff.domain.call import CallState, Effect
from signoff.domain.decision import Settlement
from signoff.domain.event import Event, make_event, run_payload
from signoff.domain.gate import GateKind, GateState
from signoff.domain.message import Message, Text, ToolResult, ToolUse
from signoff.domain.timestamp import iso
from signoff.store.decisions import Resolution
from signoff.store.facade import Store, open_store
from signoff.store.outbox import DueDelivery, Settled
from signoff.store.records import RunRecord
from signoff.store.runs import Fanout, NewRun
from signoff.store.steps import Ending, Held, NewCall, NewGate, StepCommit

ACCOUNT = "1"
USAGE = {"input_tokens": 8, "output_tokens": 8}
NOBODY, EVERYBODY = Fanout(version="0"), Fanout(version="0", endpoints=("1",))


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_urlsafe(16)}"


def now_ms() -> int:
    return int(time.time() * 1000)


def make(kind: str, run_id: int, status: str, **extra: Any) -> Event:
    payload = run_payload(run_id=run_id, agent_id=1, user_id=None, status=status, mode="approval")
    return make_event(new_id("evt"), kind, iso(now_ms()), {**payload, **extra})


@dataclass(frozen=True, slots=True)
class Parked:
    """What the decision of a parked run needs to know."""

    run: RunRecord
    digest: str


class Floor:
    """All processes of the product in one event loop."""

    def __init__(self, store: Store, ledger: Path | None) -> None:
        self._store = store
        self._ledger = ledger
        self._parked: dict[int, Parked] = {}
        self._scripts: dict[int, list[Any]] = {}
        self._done: list[Settled] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._drain, self._relay = Loop(self._take), Loop(self._claim)
        self._settle = Loop(self._settle_batch)
        self._key = secrets.token_bytes(32)
        self._receiver: Client | None = None
        self._hook: dict[str, str] = {}
        self._path = ""

    def received(self, peer: Peer, head: bytes, body: bytes) -> None:
        """One request; the answer is written when its work is durable."""
        if not peer.lost:
            self._spawn(self._answer(peer, head, body))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, peer: Peer, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/v1/runs/":
            answer = await self._create(json.loads(body))
        elif path == b"/v1/webhooks/":
            answer = self._subscribe(json.loads(body))
        elif self._authentic(head, body):
            answer = await self._decide(json.loads(body)["data"])
        else:
            peer.write(response(401, b"{}"))
            return
        peer.write(response(200, json.dumps(answer, separators=(",", ":")).encode()))

    def _subscribe(self, given: dict[str, Any]) -> dict[str, Any]:
        target = urlsplit(given["url"])
        self._receiver = Client(target.hostname or "", target.port or 0)
        self._path = target.path
        self._hook = {"host": target.netloc, "content-type": "application/json"}
        return {"id": 1, "secret": "whsec_" + base64.b64encode(self._key).decode()}

    def _authentic(self, head: bytes, body: bytes) -> bool:
        msg_id, stamp = header(head, b"webhook-id"), header(head, b"webhook-timestamp")
        expected = signature(self._key, msg_id or b"", stamp or b"", body).encode()
        return header(head, b"webhook-signature") == expected

    async def _create(self, given: dict[str, Any]) -> dict[str, Any]:
        run_id = await self._store.runs.next_id()
        self._scripts[run_id] = given["metadata"]["script"]
        message = Message(
            role="user", blocks=(Text(given["message"]),), turn=1, step=0, at_ms=now_ms()
        )
        await self._store.runs.create(
            NewRun(
                id=run_id,
                account=ACCOUNT,
                agent_id=1,
                user_id=None,
                mode="approval",
                human_in_the_loop=True,
                config={"metadata": given["metadata"]},
                message=message,
                started=make("run.started", run_id, "running"),
                fanout=NOBODY,
            )
        )
        self._drain.wake()
        return {"id": run_id, "status": "running"}

    async def _take(self) -> bool:
        taken = await self._store.steps.take(0, drainer="floor", room=256, awake_ms=1000)
        for held in taken:
            self._spawn(self._ask(held) if held.run.phase == "model" else self._finish(held))
        return bool(taken)

    async def _ask(self, held: Held) -> None:
        run = held.run
        turn = self._scripts[run.id][0]
        use = turn["tool_calls"][0]
        text = canonical(use["input"]).decode()
        bound, gate_id = digest(use["name"], use["input"]), new_id("req")
        shown = {
            "request_id": gate_id,
            "kind": "tool_approval",
            "tool_name": use["name"],
            "tool_input": use["input"],
            "digest": bound,
            "suggested_rules": [],
            "created_at": iso(now_ms()),
        }
        call = NewCall(
            id=use["id"],
            tool=use["name"],
            input_json=text,
            digest=bound,
            state=CallState.ASKED,
            effect=Effect.ONCE,
        )
        blocks = (Text(turn["text"]), ToolUse(use["id"], use["name"], use["input"]))
        message = Message(role="assistant", blocks=blocks, turn=1, step=1, at_ms=now_ms())
        commit = StepCommit(
            commit_id=new_id("c"),
            messages=[message],
            usage=USAGE,
            rules_v="0",
            calls=[call],
            gates=[NewGate(id=gate_id, kind=GateKind.TOOL_APPROVAL, n=0)],
            pause=make(
                "run.awaiting_input", run.id, "awaiting_approval", pause=1, requests=[shown]
            ),
            fanout=EVERYBODY,
        )
        self._parked[run.id] = Parked(run, bound)
        await self._store.steps.commit(run, commit)
        self._relay.wake()

    async def _decide(self, given: dict[str, Any]) -> dict[str, Any]:
        parked = self._parked.pop(given["run_id"])
        settlement = Settlement(
            state=GateState.ALLOWED, fingerprint=f"allow:{parked.digest}", allows=True
        )
        resolution = Resolution(
            gate_id=given["request_id"],
            settlement=settlement,
            by="callback:1",
            reason=None,
            expected_digest=None,
            grant=f"gate:{given['request_id']}",
        )
        decided = await self._store.decisions.decide(
            parked.run,
            [resolution],
            resumed=make("run.resumed", parked.run.id, "running"),
            fanout=NOBODY,
        )
        self._drain.wake()
        return {"status": "ok", "resumed": decided.resumed}

    async def _finish(self, held: Held) -> None:
        run, call, steps = held.run, held.calls[0], self._store.steps
        await steps.start_call(run, call, rules_v="0", attempt=1)
        content = self._tool(run.id, json.loads(call.input_json))
        result = {"state": "success", "content": content}
        await steps.finish_call(run, call, attempt=1, result=result)
        text = self._scripts.pop(run.id)[1]["text"]
        done = ToolResult(call.id, call.tool, "success", content)
        messages = [
            Message(role="tool", blocks=(done,), turn=1, step=1, at_ms=now_ms()),
            Message(role="assistant", blocks=(Text(text),), turn=1, step=2, at_ms=now_ms()),
        ]
        event = make("run.completed", run.id, "completed", output=text, usage=USAGE)
        ending = Ending(status="completed", event=event, fanout=EVERYBODY, output=text)
        commit = StepCommit(
            commit_id=new_id("c"), messages=messages, usage=USAGE, rules_v="0", ending=ending
        )
        await steps.commit(run, commit)
        self._relay.wake()

    def _tool(self, run_id: int, given: dict[str, Any]) -> str:
        if self._ledger is not None:
            with self._ledger.open("a") as file:
                line = {"run_id": run_id, "phase": "start", "ts": time.time()}
                file.write(json.dumps(line) + "\n")
        return f"Email sent to {given['to']}: {given['subject']!r}."

    async def _claim(self) -> bool:
        claim = await self._store.outbox.claim(0, token="floor", limit=256, cap=256, lease_ms=6000)
        for row in claim.rows:
            self._spawn(self._deliver(row))
        return bool(claim.rows)

    async def _deliver(self, row: DueDelivery) -> None:
        assert self._receiver is not None
        stamp = str(int(time.time()))
        headers = self._hook | {
            "webhook-id": row.event_id,
            "webhook-timestamp": stamp,
            "webhook-signature": signature(
                self._key, row.event_id.encode(), stamp.encode(), row.body
            ),
        }
        status, _ = await self._receiver.send(request("POST", self._path, headers, row.body))
        log = {"at": now_ms(), "attempt": row.attempt, "outcome": "delivered", "status": status}
        self._done.append(
            Settled(
                id=row.id,
                attempt=row.attempt,
                outcome="success",
                status=status,
                error=None,
                body="",
                log=log,
            )
        )
        self._settle.wake()

    async def _settle_batch(self) -> bool:
        batch, self._done = self._done, []
        if batch:
            await self._store.outbox.settle(0, token="floor", items=batch)
        return bool(self._done)


async def main(redis_url: str, port: int, ledger: Path | None) -> None:
    store = open_store(redis_url, secret_keys=[base64.urlsafe_b64encode(bytes(32)).decode()])
    await store.scripts.load()
    floor = Floor(store, ledger)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Peer(floor.received), "127.0.0.1", port)
    print(f"ready http://127.0.0.1:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    uvloop.run(main(options.redis, options.port, options.ledger))
