"""What the scenes of the demo have at hand: the API, signed callbacks, webhooks, and a kill."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from signoff.demo.deployment import DemoError, Deployment
from signoff.demo.receiver import Received, Receiver
from signoff.demo.timeline import Row, Timeline
from signoff.signing import sign_decision

WAIT_S = 30.0
Content = Mapping[str, Any]


class Stage:
    """One deployment and one receiver; whatever happens here becomes a row of the timeline."""

    def __init__(
        self,
        *,
        deployment: Deployment,
        api: httpx.Client,
        key: str,
        receiver: Receiver,
        timeline: Timeline,
        clock: Callable[[], float],
        token: Callable[[int], bytes],
    ) -> None:
        self._deployment = deployment
        self._api = api
        # Given with each call, so that the callbacks show that they need none.
        self._key = {"Authorization": f"Bearer {key}"}
        self._receiver = receiver
        self._timeline = timeline
        self._clock = clock
        self._began = clock()
        self._webhook: dict[str, Any] = {}
        self.token = token
        #: Every attempt that arrived, in order.
        self.arrived: list[Received] = []
        self.say = timeline.say
        self.check = timeline.check
        self.conclude = timeline.conclude

    def post(self, path: str, body: Content) -> dict[str, Any]:
        """The answer to a POST; DemoError unless it is a success."""
        return _body(self._api.post(f"/v1{path}", json=body, headers=self._key))

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET; DemoError unless it is a success."""
        return _body(self._api.get(f"/v1{path}", headers=self._key))

    def subscribe(self, events: tuple[str, ...]) -> None:
        """Make our receiver an endpoint; from now on it verifies with the endpoint's secret."""
        self._webhook = self.post("/webhooks", {"url": self._receiver.url, "events": events})
        self._receiver.expect(self._webhook["secret"])

    def deliveries(self) -> list[dict[str, Any]]:
        """What the service says of its deliveries to our endpoint."""
        found = self.get(f"/webhooks/{self._webhook['id']}/deliveries?limit=100")
        rows: list[dict[str, Any]] = found["data"]
        return rows

    def callback(
        self, content: Content, *, note: str, secret: str | None = None, msg_id: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one signed decision; its status and body."""
        body = json.dumps({"type": "decision", "data": content}).encode()
        began = self._clock()
        headers = sign_decision(
            secret or self._webhook["secret"],
            body,
            msg_id=msg_id or self.new_id(),
            timestamp=int(began),
        )
        headers["content-type"] = "application/json"
        response = self._api.post(self._webhook["callback_url"], content=body, headers=headers)
        self.row(
            "signed callback",
            note,
            at=began,
            latency=_ms(self._clock() - began),
            delivery=f"answered {response.status_code}",
            signature="accepted" if response.is_success else "refused",
        )
        return response.status_code, response.json()

    def new_id(self) -> str:
        """A webhook-id for a callback, which makes it repeatable."""
        return f"dec_{self.token(8).hex()}"

    def kill_worker(self, why: str) -> None:
        """End the worker as a crash would, without a word; `signoff dev` starts another."""
        pid = self._deployment.worker()
        if pid is None:
            raise DemoError("no worker process was found to kill")
        os.kill(pid, signal.SIGKILL)
        self.row("kill -9 worker", f"process {pid}: {why}", at=self._clock())

    def until(self, probe: Callable[[], bool], what: str) -> None:
        """Wait until the probe holds, taking in what arrives meanwhile."""

        def look() -> bool:
            self._collect()
            return probe()

        self._deployment.until(look, what, within_s=WAIT_S)
        self._collect()

    def of(self, event: str) -> list[Received]:
        """The attempts at events of that type."""
        return [attempt for attempt in self.arrived if attempt.type == event]

    def pauses(self, kind: str) -> list[Received]:
        """The attempts at announcing a pause whose first request is of that kind."""
        found = self.of("run.awaiting_input")
        return [attempt for attempt in found if attempt.content["requests"][0]["kind"] == kind]

    def _collect(self) -> None:
        for attempt in self._receiver.fresh():
            self.arrived.append(attempt)
            self.row(
                attempt.type,
                _summary(attempt),
                at=attempt.at,
                latency=_ms(attempt.at - attempt.created),
                delivery=f"attempt {attempt.attempt}: {attempt.answered}",
                signature=attempt.verdict,
            )

    def row(self, event: str, what: str, *, at: float, **cells: str) -> None:
        """Put one line into the timeline; ``at`` is a time of the clock."""
        self._timeline.add(Row(at=at - self._began, event=event, what=what, **cells))


def _body(response: httpx.Response) -> dict[str, Any]:
    if not response.is_success:
        request = response.request
        raise DemoError(
            f"{request.method} {request.url.path} was answered {response.status_code}: "
            f"{response.text[:300]}"
        )
    found: dict[str, Any] = response.json()
    return found


def _summary(attempt: Received) -> str:
    content = attempt.content
    if attempt.type != "run.awaiting_input":
        return f"run {content['run_id']}"
    request = content["requests"][0]
    shown = request["tool_name"] if request["kind"] == "tool_approval" else request["kind"]
    return f"pause {content['pause']}: {shown}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
