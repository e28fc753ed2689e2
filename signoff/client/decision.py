"""What a callback decides about a gate, and the call that says so to the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from signoff.client import ops
from signoff.client.errors import CallbackResultError
from signoff.client.op import Op
from signoff.client.values import AnswerMap, PermissionRequest
from signoff.domain.question import APPROVE, PLAN_HEADER, REVISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call may run; with ``input`` instead of what the agent wanted."""

    reason: str | None = None
    remember: bool = False
    input: Mapping[str, Any] | None = None
    rules: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call may not run; the agent is told the reason."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The result of a call that was made elsewhere."""

    output: Any
    state: Literal["success", "error"] = "success"


#: What ``on_approval`` returns; True and "allow" allow, False and "deny" deny.
Approval: TypeAlias = Allow | Deny | Supply | bool | Literal["allow", "deny"]
#: What ``on_plan`` returns: True or "Approve"; any other text is feedback, and the agent revises.
PlanAnswer: TypeAlias = bool | str | AnswerMap

OnApproval: TypeAlias = Callable[[PermissionRequest], Approval | Awaitable[Approval]]
OnQuestion: TypeAlias = Callable[[PermissionRequest], AnswerMap | Awaitable[AnswerMap]]
OnPlan: TypeAlias = Callable[[PermissionRequest], PlanAnswer | Awaitable[PlanAnswer]]
#: What ``on_external`` returns is the output, or a ``Supply``.
OnExternal: TypeAlias = Callable[[PermissionRequest], Any]


def decide(run_id: int, request: PermissionRequest, said: Any) -> Op[Any]:
    """The call that settles ``request`` as its callback ``said``; raises CallbackResultError."""
    if request.is_plan_approval:
        return ops.answer(run_id, _plan_answers(said), request_id=request.request_id)
    if request.is_question:
        if not isinstance(said, Mapping) or not said:
            raise _odd(request, said, "a mapping of question texts to answers")
        return ops.answer(run_id, said, request_id=request.request_id)
    if request.kind == "external" and not isinstance(said, Supply):
        said = Supply(output=said)
    if isinstance(said, Supply):
        result = {"output": said.output, "state": said.state}
        return ops.decide(run_id, [{"request_id": request.request_id, "result": result}])
    return _approve(run_id, request, said)


def _approve(run_id: int, request: PermissionRequest, said: Any) -> Op[Any]:
    if said is True or said == "allow":
        said = Allow()
    elif said is False or said == "deny":
        said = Deny()
    if isinstance(said, Deny):
        return ops.approve(run_id, request.request_id, "deny", reason=said.reason)
    if not isinstance(said, Allow):
        raise _odd(request, said, "Allow, Deny, True or False")
    return ops.approve(
        run_id,
        request.request_id,
        "allow",
        reason=said.reason,
        remember=said.remember or None,
        input=said.input,
        rules=list(said.rules) or None,
        # What was shown to the callback is what is allowed, or nothing is.
        expected_digest=request.digest,
    )


def _plan_answers(said: Any) -> AnswerMap:
    if isinstance(said, bool):
        return {PLAN_HEADER: APPROVE if said else REVISE}
    if isinstance(said, str) and said.strip():
        return {PLAN_HEADER: said}
    if isinstance(said, Mapping) and said:
        return said
    msg = f"a plan is answered by True, a text or a mapping, not by {type(said).__name__}"
    raise CallbackResultError(msg)


def _odd(request: PermissionRequest, said: Any, wanted: str) -> CallbackResultError:
    return CallbackResultError(
        f"the callback for {request.request_id} ({request.kind}) returned "
        f"{type(said).__name__}; {wanted} is needed"
    )
