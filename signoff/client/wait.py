"""Waiting for a run: long polls, and callbacks that decide its gates on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack, cast

from signoff.client import ops
from signoff.client.decision import OnApproval, OnExternal, OnPlan, OnQuestion, decide
from signoff.client.effects import Consult, Now, Perform, Sleep, Steps
from signoff.client.errors import (
    ConnectionFailedError,
    GateCancelledError,
    NoCallbackError,
    RateLimitError,
    RunFailedError,
    RunNotActiveError,
    ServerError,
    WaitTimeoutError,
)
from signoff.client.op import Op
from signoff.client.options import CreateOptions, ReplyOptions, known
from signoff.client.values import PermissionRequest, Run

TIMEOUT_S = 300.0
#: A little less than what proxies commonly allow a silent request.
POLL_S = 25
#: Between polls that found nothing new although they came back early.
IDLE_S = 0.5
RECOVERY_S = 1.0
_PASSING = (ConnectionFailedError, ServerError, RateLimitError)


class WaitOptions(TypedDict, total=False):
    """How to wait: for how long, and who decides.

    A plan goes to ``on_question`` when there is no ``on_plan``; a call whose outcome is unknown
    goes to ``on_approval`` (allow runs it again). A gate without a callback ends the wait with
    NoCallbackError, unless ``decided_elsewhere``.
    """

    on_approval: OnApproval | None
    on_question: OnQuestion | None
    on_plan: OnPlan | None
    on_external: OnExternal | None
    decided_elsewhere: bool
    user_id: str | None
    #: Seconds in all, callbacks included; None waits for ever.
    timeout: float | None
    raise_on_error: bool


class CreateAndWaitOptions(CreateOptions, total=False):
    """What ``create`` and ``wait`` take."""

    on_approval: OnApproval | None
    on_question: OnQuestion | None
    on_plan: OnPlan | None
    on_external: OnExternal | None
    decided_elsewhere: bool
    timeout: float | None
    raise_on_error: bool
    cancel_on_timeout: bool


class ReplyAndWaitOptions(ReplyOptions, total=False):
    """What ``reply`` and ``wait`` take."""

    on_approval: OnApproval | None
    on_question: OnQuestion | None
    on_plan: OnPlan | None
    on_external: OnExternal | None
    decided_elsewhere: bool
    user_id: str | None
    timeout: float | None
    raise_on_error: bool
    cancel_on_timeout: bool


def wait(run_id: int, **options: Unpack[WaitOptions]) -> Steps[Run]:
    """The run as it ended; its gates are decided by the callbacks on the way.

    What a callback said is sent until the service has it, and no callback is asked twice about
    the same gate. Raises WaitTimeoutError, and with ``raise_on_error`` RunFailedError.
    """
    return _Waiting(run_id, known(options, WaitOptions)).steps()


def create_and_wait(message: str, **options: Unpack[CreateAndWaitOptions]) -> Steps[Run]:
    """Starts a run and waits for it; a run that is not over in time is cancelled."""
    rest = known(options, CreateAndWaitOptions)
    cancels = rest.pop("cancel_on_timeout", True)
    waiting = {name: rest.pop(name) for name in list(rest) if name in WaitOptions.__optional_keys__}
    if "user_id" in waiting:
        rest["user_id"] = waiting["user_id"]
    run: Run = yield Perform(ops.create_run(message, **cast("CreateOptions", rest)))
    waiting["user_id"] = run.user_id or rest.get("user_id")
    return (yield from _or_cancel(run.id, waiting, cancels=cancels))


def reply_and_wait(run_id: int, message: str, **options: Unpack[ReplyAndWaitOptions]) -> Steps[Run]:
    """Says something more and waits for the turn that answers it."""
    rest = known(options, ReplyAndWaitOptions)
    cancels = rest.pop("cancel_on_timeout", True)
    waiting = {name: rest.pop(name) for name in list(rest) if name in WaitOptions.__optional_keys__}
    run: Run = yield Perform(ops.reply(run_id, message, **cast("ReplyOptions", rest)))
    # A queued message belongs to a turn of somebody else's: that one is not ours to cancel.
    cancels = cancels and run.delivery != "queued"
    return (yield from _or_cancel(run.id, waiting, cancels=cancels, queued=run.queued_message_id))


def _or_cancel(
    run_id: int, options: Mapping[str, Any], *, cancels: bool, queued: int | None = None
) -> Steps[Run]:
    try:
        return (yield from _Waiting(run_id, options, queued=queued).steps())
    except WaitTimeoutError:
        if cancels:
            try:
                yield Perform(ops.cancel(run_id))
            except (RunNotActiveError, *_PASSING):
                pass
        raise


class _Waiting:
    """One wait: what is known of the run, and what was decided about its gates."""

    def __init__(
        self, run_id: int, options: Mapping[str, Any], *, queued: int | None = None
    ) -> None:
        self._run_id = run_id
        self._options = options
        #: The message that is to be taken up before the run counts as over; None: all that wait.
        self._queued = queued
        self._run: Run | None = None
        self._said: dict[str, Op[Any]] = {}
        #: Gates that were allowed here and need further approvers, by id.
        self._short: dict[str, PermissionRequest] = {}
        self._deadline: float | None = None

    def steps(self) -> Steps[Run]:
        started: float = yield Now()
        timeout = self._options.get("timeout", TIMEOUT_S)
        if timeout is not None:
            self._deadline = started + timeout
        parked = False
        while True:
            try:
                fresh = yield from self._look(patient=not parked)
                run = self._run
                assert run is not None
                if self._over(run):
                    return self._ended(run)
                parked = False
                if fresh and run.status == "awaiting_approval":
                    yield from self._decide(run)
                elif not fresh:
                    yield from self._pause(IDLE_S)
            except _PASSING as error:
                # Whatever was decided is kept and sent again: the service takes it once.
                parked = True
                yield from self._pause(getattr(error, "retry_after", None) or RECOVERY_S)

    def _look(self, *, patient: bool) -> Steps[bool]:
        """Reads the run; False when the service came back early with nothing new."""
        known_as = self._run.version if self._run is not None and patient else None
        left = yield from self._left()
        wait_s = 0 if known_as is None else int(min(POLL_S, left))
        began: float = yield Now()
        run: Run = yield Perform(
            ops.get_run(
                self._run_id,
                user_id=self._options.get("user_id"),
                wait_s=wait_s or None,
                known=known_as if wait_s else None,
            )
        )
        ended: float = yield Now()
        before, self._run = self._run, run
        if before is None or not patient:
            return True
        if run.version is None:  # a service without long polls
            return before != run
        return before.version != run.version or ended - began >= max(wait_s - 1, IDLE_S)

    def _decide(self, run: Run) -> Steps[None]:
        """Decides every pending gate that has a callback."""
        requests: list[PermissionRequest] = yield Perform(ops.permissions(run.id))
        for request in requests:
            if not request.is_pending:
                continue
            op = self._said.get(request.request_id)
            if op is None:
                callback = self._callback(request)
                if callback is None:
                    continue
                said = yield Consult(callback, request)
                op = self._said[request.request_id] = decide(run.id, request, said)
            try:
                found: Any = yield Perform(op)
                self._note(found)
            except (GateCancelledError, RunNotActiveError):
                return  # it ended meanwhile; the next look tells how

    def _note(self, found: Any) -> None:
        """Keeps what is still open although it was allowed: it needs somebody else as well."""
        if isinstance(found, PermissionRequest):
            self._short.pop(found.request_id, None)
            if found.is_pending and found.approvers is not None:
                self._short[found.request_id] = found

    def _callback(self, request: PermissionRequest) -> OnExternal | None:
        options = self._options
        if request.is_plan_approval:
            found = options.get("on_plan") or options.get("on_question")
        elif request.is_question:
            found = options.get("on_question")
        elif request.kind == "external":
            found = options.get("on_external")
        else:
            found = options.get("on_approval")
        if found is None and not options.get("decided_elsewhere", False):
            raise NoCallbackError(request)
        return cast("OnExternal | None", found)

    def _over(self, run: Run) -> bool:
        pending = run.pending_queued_message_ids
        if self._queued is None:
            return run.is_terminal and not pending
        return run.is_terminal and self._queued not in pending

    def _ended(self, run: Run) -> Run:
        if run.status == "failed" and self._options.get("raise_on_error", False):
            raise RunFailedError(run)
        return run

    def _left(self) -> Steps[float]:
        now: float = yield Now()
        if self._deadline is None:
            return float(POLL_S)
        if now >= self._deadline:
            status = "unread" if self._run is None else self._run.status
            msg = f"run {self._run_id} is {status} and its time is up"
            if status == "awaiting_approval":
                for gate in self._short.values():
                    needed = 1 if gate.approvers is None else gate.approvers.quorum
                    msg += (
                        f"; {gate.request_id} was allowed here and had {len(gate.approvals)} of "
                        f"the {needed} approvals that it needs"
                    )
            raise WaitTimeoutError(msg, run=self._run)
        return self._deadline - now

    def _pause(self, seconds: float) -> Steps[None]:
        left = yield from self._left()
        yield Sleep(min(seconds, left))
