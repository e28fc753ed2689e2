"""What the fake does with runs besides deciding them: retry them, file them away, sum them up."""

from __future__ import annotations

from typing import Any

import httpx

from signoff.domain.error import ConflictError, MissingError
from signoff.domain.event import usage_payload
from signoff.domain.run import RETRYABLE
from signoff.testing.engine import FakeRun
from signoff.testing.shown import run_body
from signoff.testing.world import NO_USAGE

_NEWEST = 10


class Aside:
    """Requests about runs that change nothing in how they go on."""

    def __init__(self) -> None:
        self.runs: dict[int, FakeRun] = {}

    def retry(self, request: httpx.Request, run_id: int) -> tuple[int, Any]:
        """Starts the work again, as a new run; the one under way, if there is one."""
        run = self.run_of(run_id, request)
        if run.status not in RETRYABLE:
            msg = f"the run is {run.status.value}; only a failed or cancelled run is retried"
            raise ConflictError(msg, code="run_not_retryable")
        child = self.runs.get(run.retried_by or 0)
        if child is not None and not child.status.terminal:
            return 200, run_body(child)
        if run.acted and request.url.params.get("confirm") != "true":
            msg = "the run had begun to act; a retry may do it again: confirm=true"
            raise ConflictError(msg, code="retry_needs_confirmation")
        said = "\n\n".join(message.text for message in run.history if message.role == "user")
        child = run.again(self.next_run_id(), said)
        run.retried_by = child.id
        return 201, self.started(child)

    def archive(self, request: httpx.Request, run_id: int) -> Any:
        """Takes a run out of the lists."""
        return self._shelve(request, run_id, archived=True)

    def unarchive(self, request: httpx.Request, run_id: int) -> Any:
        """Puts a run back into the lists."""
        return self._shelve(request, run_id, archived=False)

    def view(self, request: httpx.Request, run_id: int) -> Any:
        """Notes nothing."""
        return run_body(self.run_of(run_id, request))

    def outcome(self, request: httpx.Request, run_id: int) -> Any:
        """What a run came to."""
        run, usage = self.run_of(run_id, request), usage_payload(NO_USAGE)
        return {
            "run_id": run.id,
            "status": run.status.value,
            "summary": run.output,
            "headline": (run.output or "").strip().partition("\n")[0] or None,
            "needs_reply": bool(run.open),
            "needs_reply_count": len(run.open),
            "output_data": run.output_data,
            "message_count": len(run.history),
            "input_tokens": usage["input_tokens"],
            "output_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
        }

    def needs_you(self, request: httpx.Request) -> Any:
        """The runs of one scope that wait for a person."""
        user_id = request.url.params.get("user_id")
        found = [
            {"run_id": run.id, "title": f"Run {run.id} waits for you", "mate_name": "Assistant"}
            for run in reversed(self.runs.values())
            if run.open and run.user_id == user_id and not run.archived
        ]
        return {"count": len(found), "items": found[:_NEWEST]}

    def run_of(self, run_id: int, request: httpx.Request) -> FakeRun:
        """The run; missing when a user is given that is not its own."""
        run, user_id = self.runs.get(run_id), request.url.params.get("user_id")
        if run is None or user_id not in (None, run.user_id):
            raise MissingError(f"no run {run_id}")
        return run

    def started(self, run: FakeRun) -> Any:
        """Keeps a new run and lets it play; its body is that from before."""
        self.runs[run.id] = run
        run.announce()
        made = run_body(run)
        run.advance()
        return made

    def next_run_id(self) -> int:
        """An id that no run has."""
        return max(self.runs, default=0) + 1

    def _shelve(self, request: httpx.Request, run_id: int, *, archived: bool) -> Any:
        run = self.run_of(run_id, request)
        run.archived = archived
        return run_body(run)
