"""Builds events and finds the endpoints that get them, ahead of the script that writes both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from signoff.domain import event as events
from signoff.domain.approval import Approval
from signoff.domain.event import Event, make_event, run_payload, usage_payload
from signoff.domain.expiry import GateTimes
from signoff.domain.gate import Gate, GateKind
from signoff.domain.timestamp import iso
from signoff.store.catalog import Catalog
from signoff.store.records import RunRecord
from signoff.store.runs import Fanout


class Publisher:
    """Makes events with ids and times from its parameters; writes nothing itself.

    ``now_ms`` is the wall clock in Unix milliseconds, ``token`` gives unguessable text of
    ``[A-Za-z0-9_-]`` for event ids.
    """

    def __init__(
        self, catalog: Catalog, *, now_ms: Callable[[], int], token: Callable[[], str]
    ) -> None:
        self._catalog = catalog
        self._now_ms = now_ms
        self._token = token

    async def fanout(self, run: RunRecord, event_type: str) -> Fanout:
        """The endpoints that get an event of this run."""
        return await self.fanout_for(run.account, run.id, run.user_id, event_type)

    async def fanout_for(
        self, account: str, run_id: int, user_id: str | None, event_type: str
    ) -> Fanout:
        """The endpoints that get an event of a run that may not exist yet."""
        found = await self._catalog.subscriptions(account, run_id)
        return found.fanout(event_type, user_id)

    def event(self, kind: str, payload: Mapping[str, Any]) -> Event:
        """An event of any type."""
        return make_event(f"evt_{self._token()}", kind, iso(self._now_ms()), payload)

    def run_event(
        self, run: RunRecord, kind: str, *, status: str, extra: Mapping[str, Any] | None = None
    ) -> Event:
        """An event of a run that has, or is about to have, ``status``."""
        payload = run_payload(
            run_id=run.id,
            agent_id=run.agent_id,
            user_id=run.user_id,
            status=status,
            mode=run.mode.value,
        )
        return self.event(kind, {**payload, **(extra or {})})

    def awaiting_input(self, run: RunRecord, requests: Sequence[Mapping[str, Any]]) -> Event:
        """The event of a new pause; ``requests`` as request_payload makes them.

        ``questions`` is there only when a question or a plan is among the requests.
        """
        extra: dict[str, Any] = {"pause": run.pause_n + 1, "requests": list(requests)}
        asked = (GateKind.QUESTION.value, GateKind.PLAN.value)
        questions = [
            question
            for request in requests
            if request["kind"] in asked
            for question in request["tool_input"]["questions"]
        ]
        if questions:
            extra["questions"] = questions
        return self.run_event(
            run, events.RUN_AWAITING_INPUT, status="awaiting_approval", extra=extra
        )

    def ended(
        self,
        run: RunRecord,
        status: str,
        *,
        output: str | None = None,
        output_data: Mapping[str, Any] | None = None,
        error: str | None = None,
        error_code: str | None = None,
        usage: Mapping[str, int] | None = None,
    ) -> Event:
        """The event of a run's end; ``output_data`` is there only for a structured answer."""
        extra: dict[str, Any] = {
            "output": output,
            "error": error,
            "error_code": error_code,
            "usage": usage_payload(run.usage if usage is None else usage),
        }
        if output_data is not None:
            extra["output_data"] = output_data
        return self.run_event(run, f"run.{status}", status=status, extra=extra)

    def request_payload(
        self,
        *,
        request_id: str,
        kind: GateKind,
        tool: str,
        tool_input: Mapping[str, Any],
        digest: str,
        suggested_rules: Sequence[Mapping[str, Any]],
        approval: Approval | None = None,
        times: GateTimes | None = None,
        created_ms: int | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One gate in an event, by default one that opens now; tool and input as listed.

        Approvers, times and an output schema are there only where the gate has them.
        """
        remind = None if times is None else times.remind_ms
        expires = None if times is None else times.expires_ms
        own = {
            "approvers": None if approval is None else approval.fields,
            "remind_at": None if remind is None else iso(remind),
            "expires_at": None if expires is None else iso(expires),
            "output_schema": output_schema,
        }
        return {
            "request_id": request_id,
            "kind": kind.value,
            "tool_name": tool,
            "tool_input": dict(tool_input),
            "digest": digest,
            "suggested_rules": [dict(rule) for rule in suggested_rules],
            "created_at": iso(self._now_ms() if created_ms is None else created_ms),
            **{name: value for name, value in own.items() if value is not None},
        }

    def gate_payload(self, gate: Gate) -> dict[str, Any]:
        """A gate that is there already, in an event."""
        tool, tool_input = gate.listed
        return self.request_payload(
            request_id=gate.id,
            kind=gate.kind,
            tool=tool,
            tool_input=tool_input,
            digest=gate.digest,
            suggested_rules=gate.suggested_rules,
            approval=gate.approval,
            times=GateTimes(
                opened_ms=gate.created_ms, remind_ms=gate.remind_ms, expires_ms=gate.expires_ms
            ),
            created_ms=gate.created_ms,
            output_schema=gate.output_schema,
        )
