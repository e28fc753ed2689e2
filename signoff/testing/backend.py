"""The requests of the fake: what each does to its runs, rules and endpoints, and the answer."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel
from pydantic import ValidationError as ShapeError

from signoff.domain import event as events
from signoff.domain.decision import Decision
from signoff.domain.error import (
    ConflictError,
    GateRefusedError,
    InvalidFieldError,
    MissingError,
    SignoffError,
    UnauthorizedError,
)
from signoff.domain.expiry import Limits
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.mode import Mode
from signoff.domain.path import below
from signoff.domain.rule import Verdict
from signoff.script import check_script
from signoff.signing import SignatureError, verify
from signoff.strictjson import loads
from signoff.testing.aside import Aside
from signoff.testing.endpoints import Endpoints, masked
from signoff.testing.engine import FakeRun
from signoff.testing.refusal import BatchRefusedError
from signoff.testing.rulebook import Rulebook
from signoff.testing.shown import (
    asked_body,
    evaluation_body,
    message_bodies,
    page_body,
    policy_body,
    run_body,
    status_of,
)
from signoff.testing.webhook import awaiting
from signoff.testing.world import World
from signoff.wire.body import Body
from signoff.wire.decision import (
    Answer,
    Approve,
    CallbackEnvelope,
    DecideBatch,
    SignedBatch,
    SignedDecision,
    SubmitResults,
    read_batch,
    read_results,
)
from signoff.wire.policy import CreatePolicy, Evaluate
from signoff.wire.run import CreateRun, SwitchMode
from signoff.wire.shown import gate_body
from signoff.wire.webhook import ChangeWebhook, CreateWebhook

M = TypeVar("M", bound=BaseModel)
KEY = "fake-api-key"
URL = "http://signoff.test"
_PAGE = 20
_LOOK_S = 0.01


class _Reply(Body):
    message: str


class Backend(Aside):
    """All that the fake keeps; not safe for threads by itself."""

    def __init__(
        self,
        *,
        tools: Mapping[str, Callable[[Mapping[str, Any]], Any]],
        read_only: Collection[str],
        external: Collection[str],
        api_key: str,
        now: Callable[[], float],
    ) -> None:
        super().__init__()
        self._api_key = api_key
        self._now, self._ahead_s = now, 0.0
        self._rules = Rulebook(
            tools=[*tools, *read_only, *external],
            number=lambda: self._number("policy"),
            now_ms=self._now_ms,
        )
        self._numbers: dict[str, int] = {}
        self._agents: dict[tuple[str | None, str], int] = {}
        self._once: dict[str, tuple[str, int, Any]] = {}
        self.endpoints = Endpoints(
            new_id=self._new_id, now_ms=self._now_ms, token=secrets.token_bytes
        )
        self._world = World(
            tools=tools,
            read_only=read_only,
            external=external,
            rules=self._rules.all,
            new_id=self._new_id,
            now_ms=self._now_ms,
            emit=self._emit,
            used=self._rules.used,
        )

    def dispatch(self, request: httpx.Request) -> tuple[int, Any]:
        """The status and body of one request; raises SignoffError."""
        self._do_due()
        path = re.sub(r"^/api/v2", "/v1", request.url.path.rstrip("/"))
        if request.method == "POST" and (found := re.fullmatch(r"/v1/callbacks/(\d+)", path)):
            return self._callback(int(found[1]), request)
        if request.headers.get("authorization") != f"Bearer {self._api_key}":
            raise UnauthorizedError("there is no such API key")
        known = False
        for pattern, methods in _ROUTES.items():
            if found := re.fullmatch(pattern, path):
                known = True
                if request.method in methods:
                    answer = methods[request.method](self, request, *map(int, found.groups()))
                    return answer if isinstance(answer, tuple) else (200, answer)
        if known:
            raise SignoffError("this path does not take this method", code="method_not_allowed")
        raise MissingError("there is nothing here")

    def advance(self, seconds: float) -> None:
        """Lets so much time pass at once."""
        self._ahead_s += seconds
        self._do_due()

    def _do_due(self) -> None:
        for run in list(self.runs.values()):
            run.do_due()

    def create_run(self, request: httpx.Request) -> tuple[int, Any]:
        """Starts a run."""
        body = _body(request, CreateRun)
        mode = Mode(body.permission_mode or "autonomous")
        if mode.needs_person and body.human_in_the_loop is not True:
            msg = f"permission_mode {mode} needs human_in_the_loop: true"
            raise InvalidFieldError(msg, field="permission_mode")
        check_script(body.metadata)
        return self._only_once(request, lambda: self._start(body, mode))

    def _start(self, body: CreateRun, mode: Mode) -> tuple[int, Any]:
        limits = Limits.read(body.model_dump(include=set(Limits().fields))).checked()
        place = (body.user_id, body.name or "Assistant")
        agent_id = body.agent_id or body.teammate_id or self._agents.get(place)
        if agent_id is None:
            agent_id = self._agents[place] = self._number("agent")
        run = FakeRun(
            self._world,
            run_id=self.next_run_id(),
            agent_id=agent_id,
            user_id=body.user_id,
            mode=mode,
            human=body.human_in_the_loop is True,
            metadata=body.metadata,
            message=body.message,
            limits=limits,
            external_tools=[item.declaration() for item in body.external_tools or ()],
            output_schema=body.output_schema,
        )
        return 201, self.started(run)

    def list_runs(self, request: httpx.Request) -> Any:
        """Runs, newest first."""
        params = request.url.params
        user_id, status = params.get("user_id"), params.get("status")
        every = params.get("include_end_user_runs") == "true"
        found = [
            run_body(run)
            for run in reversed(self.runs.values())
            if (every or run.user_id == user_id)
            and status in (None, run.status.value)
            and not run.archived
        ]
        return _page(request, found)

    def get_run(self, request: httpx.Request, run_id: int) -> Any:
        """One run."""
        return run_body(self.run_of(run_id, request))

    def messages(self, request: httpx.Request, run_id: int) -> Any:
        """The history of a run."""
        return message_bodies(self.run_of(run_id, request))

    def cancel(self, request: httpx.Request, run_id: int) -> Any:
        """Ends a run."""
        run = self.run_of(run_id, request)
        run.cancel(by="key:fake")
        return run_body(run)

    def reply(self, request: httpx.Request, run_id: int) -> tuple[int, Any]:
        """Begins another turn."""
        message = _body(request, _Reply).message
        run = self.run_of(run_id, request)
        if not run.status.terminal:
            raise ConflictError("the fake takes replies when the turn is over")
        return self._only_once(request, lambda: self._replied(run, message))

    def _replied(self, run: FakeRun, message: str) -> tuple[int, Any]:
        run.reply(message)
        made = {**run_body(run), "delivery": "resumed"}
        run.advance()
        return 200, made

    def mode(self, request: httpx.Request, run_id: int) -> Any:
        """Switches the mode."""
        mode = Mode(_body(request, SwitchMode).permission_mode)
        self.run_of(run_id, request).switch(mode)
        return {"permission_mode": mode.value}

    def permissions(self, request: httpx.Request, run_id: int) -> Any:
        """The gates of a run."""
        return [gate_body(gate) for gate in self.run_of(run_id, request).gates.values()]

    def approve(self, request: httpx.Request, run_id: int) -> Any:
        """Allows or denies a gate."""
        body, run = _body(request, Approve), self.run_of(run_id, request)
        (gate,) = self._decide(run, [body.read()])
        return gate_body(gate, resumed=not run.open)

    def answer(self, request: httpx.Request, run_id: int) -> Any:
        """Answers a question or a plan."""
        body, run = _body(request, Answer), self.run_of(run_id, request)
        asked = [gate.id for gate in run.open if gate.kind.answered]
        request_id = body.request_id or next(iter(asked), None)
        if request_id is None:
            raise GateRefusedError("no question of the run is open", code="run_not_awaiting")
        self._decide(run, [Decision(request_id=request_id, answers=body.answers)])
        return {"status": "ok", "resumed": not run.open}

    def decisions(self, request: httpx.Request, run_id: int) -> Any:
        """Decides several gates."""
        batch = read_batch(_body(request, DecideBatch).decisions)
        run = self.run_of(run_id, request)
        return _decided(run, self._decide(run, batch, items="decisions"))

    def results(self, request: httpx.Request, run_id: int) -> Any:
        """Takes results of external calls; their schemas are not checked here."""
        body, run = _body(request, SubmitResults), self.run_of(run_id, request)
        gates = [gate for gate in run.gates.values() if gate.kind is GateKind.EXTERNAL]
        gates.sort(key=lambda gate: gate.state is GateState.PENDING)
        batch = read_results(body.results, {gate.tool_use_id: gate.id for gate in gates})
        return _decided(run, self._decide(run, batch, items="results"))

    def inbox(self, request: httpx.Request) -> Any:
        """Open gates of all runs."""
        params = request.url.params
        user_id, tool = params.get("user_id"), params.get("tool")
        found = [
            {**gate_body(gate), "user_id": run.user_id, "agent_id": run.agent_id}
            for run in self.runs.values()
            for gate in run.open
            if user_id in (None, run.user_id) and tool in (None, gate.listed[0])
        ]
        return _page(request, sorted(found, key=lambda row: str(row["created_at"])))

    def create_policy(self, request: httpx.Request) -> tuple[int, Any]:
        """Stores a rule."""
        rule, made = self._rules.create(_body(request, CreatePolicy))
        return (201 if made else 200), policy_body(rule)

    def evaluate(self, request: httpx.Request) -> Any:
        """What would become of a call."""
        body = _body(request, Evaluate)
        read_only = body.call.tool in self._world.read_only
        return evaluation_body(self._rules.evaluate(body, read_only=read_only))

    def list_policies(self, request: httpx.Request) -> Any:
        """The rules of a scope."""
        user_id = request.url.params.get("user_id")
        found = [rule for rule in self._rules.all() if rule.user_id == user_id]
        return _page(request, [policy_body(rule) for rule in reversed(found)])

    def delete_policy(self, request: httpx.Request, policy_id: int) -> tuple[int, Any]:
        """Revokes a rule."""
        self._rules.delete(policy_id, request.url.params.get("user_id"))
        return 204, None

    def create_webhook(self, request: httpx.Request) -> tuple[int, Any]:
        """Makes an endpoint."""
        signature = "hex" if request.url.path.startswith("/api/v2") else "standard"
        return 201, self.endpoints.create(_body(request, CreateWebhook), signature)

    def list_webhooks(self, request: httpx.Request) -> Any:
        """The endpoints of a scope."""
        return _page(request, self.endpoints.listed(request.url.params.get("user_id")))

    def get_webhook(self, _request: httpx.Request, webhook_id: int) -> Any:
        """One endpoint."""
        return masked(self.endpoints.row(webhook_id))

    def change_webhook(self, request: httpx.Request, webhook_id: int) -> Any:
        """Changes an endpoint."""
        return self.endpoints.change(webhook_id, _body(request, ChangeWebhook))

    def delete_webhook(self, _request: httpx.Request, webhook_id: int) -> tuple[int, Any]:
        """Removes an endpoint."""
        self.endpoints.delete(webhook_id)
        return 204, None

    def ping_webhook(self, _request: httpx.Request, webhook_id: int) -> tuple[int, Any]:
        """Sends a test event."""
        return 202, self.endpoints.test(webhook_id)

    def _callback(self, webhook_id: int, request: httpx.Request) -> tuple[int, Any]:
        raw = request.content
        refused = UnauthorizedError("the callback is not signed by an endpoint that may decide")
        try:
            known = self.endpoints.secrets(webhook_id)
            verified = verify(raw, request.headers.multi_items(), known, now=self._now())
        except SignatureError:
            raise refused from None
        envelope = _check(CallbackEnvelope, loads(raw))
        if envelope.type == "decisions":
            many = _check(SignedBatch, envelope.data)
            run_id, decisions = many.run_id, read_batch(many.decisions)
        else:
            one = _check(SignedDecision, envelope.data)
            run_id, decisions = one.run_id, [one.read()]
        run = self.runs.get(run_id)
        if run is None or run.user_id != self.endpoints.row(webhook_id)["user_id"]:
            raise refused
        key = f"callback:{webhook_id}:{verified.msg_id}"
        items = "decisions" if envelope.type == "decisions" else None
        return self._kept(
            key,
            raw,
            lambda: (200, _decided(run, self._decide(run, decisions, items=items))),
        )

    # What several requests do

    def _decide(
        self, run: FakeRun, decisions: Sequence[Decision], *, items: str | None = None
    ) -> list[Gate]:
        try:
            gates = run.decide(decisions, by="key:fake")
        except BatchRefusedError as refused:
            n, first = refused.refusals[0]
            if items is None:
                raise first from None
            at, field = f"{items}[{n}]", first.field
            if field is not None and items == "results":
                field = field.removeprefix("result").removeprefix(".")
            raise SignoffError(
                f"{at}: {first.message}",
                code=first.code,
                field=below(at, field),
                details={
                    **first.details,
                    items: [
                        {
                            "index": place,
                            "request_id": decisions[place].request_id,
                            "status": status_of(error),
                            "error_code": error.code,
                        }
                        for place, error in refused.refusals
                    ],
                },
            ) from None
        for decision in decisions:
            self._remember(run, decision)
        return gates

    def _remember(self, run: FakeRun, decision: Decision) -> None:
        gate = run.gates[decision.request_id]
        accepted = [*decision.rules, *(gate.suggested_rules if decision.remember else ())]
        for rule in accepted:
            self._rules.put(str(rule["tool"]), Verdict.ALLOW, run.user_id, "run_approval")

    def _only_once(
        self, request: httpx.Request, work: Callable[[], tuple[int, Any]]
    ) -> tuple[int, Any]:
        key = request.headers.get("idempotency-key")
        if key is None:
            return work()
        return self._kept(f"{request.url.path.rstrip('/')}:{key}", request.content, work)

    def _kept(self, key: str, raw: bytes, work: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
        digest = hashlib.sha256(raw).hexdigest()
        if key not in self._once:
            self._once[key] = (digest, *work())
        seen, status, body = self._once[key]
        if seen != digest:
            msg = "this key was used with another body before"
            raise ConflictError(msg, code="idempotency_key_reuse")
        return status, body

    def _emit(self, run: FakeRun, kind: str, extra: Mapping[str, Any]) -> None:
        payload = {**run.payload(), **extra}
        if "gates" in payload:
            asked = [asked_body(gate) for gate in payload.pop("gates")]
            if kind == events.RUN_AWAITING_INPUT:
                payload |= awaiting(payload["pause"], asked)
            else:
                now = payload.pop("settled", [{}] * len(asked))
                payload["requests"] = [{**a, **b} for a, b in zip(asked, now, strict=True)]
        self.endpoints.emit(kind, run.user_id, payload)

    def _number(self, kind: str) -> int:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return self._numbers[kind]

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{secrets.token_urlsafe(16)}"

    def _now_ms(self) -> int:
        return int((self._now() + self._ahead_s) * 1000)


def _body(request: httpx.Request, model: type[M]) -> M:
    return _check(model, loads(request.content))


def _check(model: type[M], value: Any) -> M:
    try:
        return model.model_validate(value)
    except ShapeError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise InvalidFieldError(f"{path}: {first['msg']}", field=path or None) from None


def _decided(run: FakeRun, gates: Sequence[Gate]) -> dict[str, Any]:
    return {
        "status": "ok",
        "resumed": not run.open,
        "requests": [gate_body(gate) for gate in gates],
    }


def _page(request: httpx.Request, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    params = request.url.params
    cursor, limit = params.get("starting_after"), params.get("limit", str(_PAGE))
    if not limit.isdigit() or not 1 <= int(limit) <= 100:  # noqa: PLR2004 - as the service
        raise InvalidFieldError("limit must be a whole number from 1 to 100", field="limit")
    if cursor is not None:
        ids = [str(item.get("id", item.get("request_id"))) for item in items]
        items = items[ids.index(cursor) + 1 :] if cursor in ids else []
    return page_body(items, int(limit))


_RUN = r"/v1/runs/([1-9][0-9]{0,14})"
_POLICY = r"/v1/permissions/([1-9][0-9]{0,14})"
_WEBHOOK = r"/v1/webhooks/([1-9][0-9]{0,14})"
_ROUTES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    r"/v1/runs": {"POST": Backend.create_run, "GET": Backend.list_runs},
    r"/v1/runs/needs-you": {"GET": Backend.needs_you},
    _RUN: {"GET": Backend.get_run},
    rf"{_RUN}/retry": {"POST": Backend.retry},
    rf"{_RUN}/archive": {"POST": Backend.archive},
    rf"{_RUN}/unarchive": {"POST": Backend.unarchive},
    rf"{_RUN}/view": {"POST": Backend.view},
    rf"{_RUN}/outcome": {"GET": Backend.outcome},
    rf"{_RUN}/messages": {"GET": Backend.messages},
    rf"{_RUN}/cancel": {"POST": Backend.cancel},
    rf"{_RUN}/reply": {"POST": Backend.reply},
    rf"{_RUN}/permission-mode": {"PATCH": Backend.mode},
    rf"{_RUN}/permissions": {"GET": Backend.permissions},
    rf"{_RUN}/approve": {"POST": Backend.approve},
    rf"{_RUN}/answer": {"POST": Backend.answer},
    rf"{_RUN}/decisions": {"POST": Backend.decisions},
    rf"{_RUN}/results": {"POST": Backend.results},
    r"/v1/requests": {"GET": Backend.inbox},
    r"/v1/permissions": {
        "POST": Backend.create_policy,
        "GET": Backend.list_policies,
    },
    r"/v1/permissions/evaluate": {"POST": Backend.evaluate},
    _POLICY: {"DELETE": Backend.delete_policy},
    r"/v1/webhooks": {
        "POST": Backend.create_webhook,
        "GET": Backend.list_webhooks,
    },
    _WEBHOOK: {
        "GET": Backend.get_webhook,
        "PATCH": Backend.change_webhook,
        "DELETE": Backend.delete_webhook,
    },
    rf"{_WEBHOOK}/test": {"POST": Backend.ping_webhook},
}
