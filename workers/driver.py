"""Drives one held run: calls, then the model, until it parks, ends, or the lease is gone.

Everything durable goes through the store's scripts under the fence; what this object keeps in
memory is a copy that may be dropped at any point.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from signoff.agents import Agent, AgentFailedError, Step
from signoff.domain import event as events
from signoff.domain.call import Call, CallState, next_moves, results_message
from signoff.domain.error import LeaseLostError, StaleError
from signoff.domain.expiry import GateTimes, Limits
from signoff.domain.frame import MODEL_END, MODEL_START, frame, gate_frames
from signoff.domain.gate import GateKind, listed_call
from signoff.domain.jsontext import compact
from signoff.domain.message import Message
from signoff.domain.output import OUTPUT_INVALID
from signoff.store.records import RunRecord
from signoff.store.steps import Ending, Held, NewGate, StepCommit
from signoff.tooldef import Tool
from workers.agent.native import NativeAgent
from workers.asking import agent_run, ask_agent, demand, spoken
from workers.engine import Engine
from workers.execution import Execution
from workers.frames import earlier_frames, end_frames, step_frames
from workers.judging import Basis, JudgedStep, fresh_calls, kept_schema
from workers.output import Answer, answer_of
from workers.turns import next_turn

logger = logging.getLogger(__name__)
MAX_TAKEOVERS = 5


class Driver:
    """One held run; ``nudge`` is set when somebody changed the run while it is held."""

    def __init__(self, engine: Engine, held: Held) -> None:
        self._engine = engine
        self.run = held.run
        self.calls = held.calls
        self.tools: Mapping[str, Tool] = {}
        self._agent: Agent = NativeAgent(engine.model)
        self._offered: Mapping[str, Tool] = {}
        self._saved: bytes | None = None
        self.nudge = asyncio.Event()

    async def drive(self) -> None:
        """Goes on until there is nothing to do here; raises LeaseLostError when it is lost."""
        if self.run.status.terminal and not await self._next_turn():
            await self._release()
            return
        if self.run.takeovers >= MAX_TAKEOVERS:
            await self._fail("step_crashed", "the step was taken over too often without progress")
            return
        try:
            await self._meet_agent()
        except AgentFailedError as error:
            await self._fail(error.code, error.message)
            return
        while True:
            if self.run.phase == "calls" and not await self._work():
                return
            if self._engine.stopping.is_set():
                await self._release(force=True)
                return
            if await self._ask():
                return

    async def _meet_agent(self) -> None:
        """Finds the run's agent, what it saved and its tools."""
        engine, run = self._engine, self.run
        self.tools = self._offered = await engine.tools.of(run)
        named = engine.roster.of(run.config["model"])
        if named is None:
            return
        self._agent = named
        self._saved = await engine.insist(engine.store.runs.saved, run.id)
        self.tools = await named.tools(agent_run(run, self._offered), self._saved)

    async def _next_turn(self) -> bool:
        """A message waited for the end of the turn: it starts the next one."""
        while True:
            try:
                started = await next_turn(self._engine, self.run, self.calls)
            except StaleError:
                self._engine.store.catalog.forget(self.run.account)
                self.run, self.calls = await self._read()
                if not self.run.status.terminal:
                    return True  # it was started; only the reply to that was lost
                continue
            if started:
                self.run, self.calls = await self._read()
            return started

    async def _read(self) -> tuple[RunRecord, list[Call]]:
        runs, insist = self._engine.store.runs, self._engine.insist
        run, calls = await asyncio.gather(
            insist(runs.load, self.run.account, self.run.id), insist(runs.calls, self.run.id)
        )
        if run.fence != self.run.fence:
            raise LeaseLostError(f"run {run.id} moved on")
        return run, calls

    async def refresh(self) -> None:
        """Reads the run and its calls again; raises LeaseLostError when the fence moved."""
        run, calls = await self._read()
        if run.status.terminal:
            raise LeaseLostError(f"run {run.id} has ended")
        if int(run.rev) < int(self.run.rev):
            return  # a slower read than one that came before it
        # A result is final: a read that began before it must not take it back.
        self.calls = [
            known if known.state is CallState.DONE else call
            for known, call in zip(self.calls, calls, strict=True)
        ]
        self.run = run

    # -- calls ---------------------------------------------------------------------------------

    async def _work(self) -> bool:
        """Runs what may run; True when every call has its result, False without the lease."""
        running: dict[int, asyncio.Task[Call]] = {}
        try:
            while True:
                moves = next_moves(self.calls, running=frozenset(running))
                if moves.finished:
                    return True
                if moves.unknown:
                    await self._unknown(moves.unknown)
                    continue
                if not self._engine.stopping.is_set():
                    for call in moves.start:
                        execution = Execution(self._engine, self, call)
                        running[call.n] = asyncio.create_task(execution.finish())
                if not running:
                    if await self._release(force=self._engine.stopping.is_set()):
                        return False
                    continue
                await self._wait(running)
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _wait(self, running: dict[int, asyncio.Task[Call]]) -> None:
        nudged = asyncio.create_task(self.nudge.wait())
        try:
            await asyncio.wait({*running.values(), nudged}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nudged.cancel()
        for n, task in list(running.items()):
            if task.done():
                del running[n]
                self.calls[n] = task.result()
        if self.nudge.is_set():
            self.nudge.clear()
            await self.refresh()

    async def _unknown(self, calls: Sequence[Call]) -> None:
        """Started calls that nobody may repeat: a person decides, or the model is told."""
        if self.run.human_in_the_loop:
            await self.ask_again(calls, GateKind.OUTCOME_UNKNOWN)
            return
        for call in calls:
            self.calls[call.n] = await Execution(self._engine, self, call).unknown()

    async def ask_again(self, calls: Sequence[Call], kind: GateKind) -> None:
        """Opens gates for calls of this step, as a new pause with its own event."""
        engine = self._engine
        ids = [engine.new_id() for _ in calls]
        while True:
            ruleset = await engine.insist(engine.store.catalog.rules, self.run.account, self.run.id)
            basis = Basis(rules=ruleset.rules, tools=self.tools, now_ms=engine.now_ms())
            gates = [
                NewGate(
                    id=f"req_{gate_id}",
                    kind=kind,
                    n=call.n,
                    suggested_rules=engine.judging.suggestions(call, self.tools)
                    if kind is GateKind.TOOL_APPROVAL
                    else (),
                    approval=engine.judging.approval(self.run, call, basis),
                    input_schema=kept_schema(self.tools.get(call.tool))
                    if kind is GateKind.TOOL_APPROVAL
                    else None,
                )
                for gate_id, call in zip(ids, calls, strict=True)
            ]
            times = await self._times()
            rows = [self._shown(gate, call, times) for gate, call in zip(gates, calls, strict=True)]
            event = engine.publisher.awaiting_input(self.run, rows)
            fanout = await engine.insist(
                engine.publisher.fanout, self.run, events.RUN_AWAITING_INPUT
            )
            try:
                await engine.insist(
                    engine.store.steps.ask_again,
                    self.run,
                    gates,
                    pause=event,
                    fanout=fanout,
                    rules_v=ruleset.version,
                    times=times,
                    frames=[
                        shown
                        for row, call in zip(rows, calls, strict=True)
                        for shown in gate_frames(row, call.id)
                    ],
                )
            except StaleError as error:
                await self.moved()
                if error.details.get("what") == "calls":
                    return  # one of them moved on meanwhile; the caller looks again
                continue
            break
        await self.refresh()

    async def _times(self) -> GateTimes | None:
        """When gates that open now are due; by the store's clock, which also acts on it."""
        limits = Limits.read(self.run.config)
        if limits.times(0) is None:
            return None
        engine = self._engine
        return limits.times(await engine.insist(engine.store.timing.clock))

    def _shown(self, gate: NewGate, call: Call, times: GateTimes | None) -> dict[str, Any]:
        tool, tool_input = listed_call(gate.kind, call.tool, json.loads(call.effective_json))
        return self._engine.publisher.request_payload(
            request_id=gate.id,
            kind=gate.kind,
            tool=tool,
            tool_input=tool_input,
            digest=call.run_digest,
            suggested_rules=gate.suggested_rules,
            approval=gate.approval,
            times=times,
        )

    async def moved(self) -> None:
        """A version moved: forget what is cached of the account and read the run again."""
        self._engine.store.catalog.forget(self.run.account)
        await self.refresh()

    async def _release(self, *, force: bool = False) -> bool:
        """Gives the lease back; False when work has become due (the copy is fresh then)."""
        engine = self._engine
        held, hint = await engine.insist(engine.store.steps.release, self.run, force=force)
        if held is None:
            if hint:
                engine.hint(engine.store.shards.of(self.run.id), self.run.id)
            return True
        self.run, self.calls = held.run, held.calls
        return False

    # -- agent ---------------------------------------------------------------------------------

    async def _ask(self) -> bool:
        """One step of the agent and its commit; True when the lease ended with it."""
        engine, run = self._engine, self.run
        if run.turn_steps >= int(run.config.get("max_turns", 2000)):
            await self._fail("max_turns_exceeded", "the turn reached its limit of model calls")
            return True
        started = frame(MODEL_START, step=run.step + 1, model=run.config["model"])
        before, _ = await asyncio.gather(
            engine.insist(engine.histories.load, run.id),
            engine.insist(engine.store.runs.append_frame, run.id, started),
        )
        results = self._results()
        turn = demand(
            agent_run(run, self._offered),
            [*before, *results],
            self.calls if results else (),
            saved=self._saved,
            count=self._count,
        )
        try:
            step, frames = await ask_agent(engine, run, self._agent, turn)
        except AgentFailedError as error:
            await self._fail(error.code, error.message)
            return True
        said = spoken(step, run, engine.now_ms())
        owed = answer_of(run, step, turn.messages)
        added = [*results, *said, *owed.messages(said[-1])]
        shown = [*frames, *earlier_frames(step), *owed.frames()]
        released = await self._commit(step, added, shown, owed)
        engine.histories.add(run.id, added)
        if step.saved is not None:
            self._saved = step.saved
        if self._saved is None or released:
            return released
        try:
            # Its tools may work on what it has just saved.
            self.tools = await self._agent.tools(agent_run(self.run, self._offered), self._saved)
        except AgentFailedError as error:
            await self._fail(error.code, error.message)
            return True
        return False

    async def _count(self, name: str) -> int:
        return await self._engine.store.runs.count(self.run.id, name)

    async def _commit(
        self, step: Step, added: Sequence[Message], frames: Sequence[bytes], owed: Answer
    ) -> bool:
        engine = self._engine
        commit_id = engine.new_id()
        while True:
            ruleset = await engine.insist(engine.store.catalog.rules, self.run.account, self.run.id)
            basis = Basis(
                rules=ruleset.rules,
                tools=self.tools,
                now_ms=engine.now_ms(),
                refusals=owed.refusals,
            )
            uses = () if owed.last else step.calls
            judged = engine.judging.step(self.run, uses, basis)
            commit = await self._step_commit(
                commit_id, step, owed, judged, added=added, frames=frames, rules_v=ruleset.version
            )
            try:
                released, wake = await engine.insist(engine.store.steps.commit, self.run, commit)
            except StaleError:
                await self.moved()
                continue
            if not released:
                self._advance(judged, commit.usage, wake)
            return released

    async def _step_commit(
        self,
        commit_id: str,
        step: Step,
        owed: Answer,
        judged: JudgedStep,
        *,
        added: Sequence[Message],
        frames: Sequence[bytes],
        rules_v: str,
    ) -> StepCommit:
        engine, run = self._engine, self.run
        usage = asdict(step.usage)
        pause = fanout = ending = times = None
        last: list[bytes] = []
        if judged.gates:
            times = await self._times()
            rows = [
                engine.publisher.request_payload(
                    request_id=opened.gate.id,
                    kind=opened.gate.kind,
                    tool=opened.tool,
                    tool_input=opened.tool_input,
                    digest=opened.digest,
                    suggested_rules=opened.gate.suggested_rules,
                    approval=opened.gate.approval,
                    times=times,
                    output_schema=opened.gate.output_schema,
                )
                for opened in judged.gates
            ]
            pause = engine.publisher.awaiting_input(run, rows)
            fanout = await engine.insist(engine.publisher.fanout, run, events.RUN_AWAITING_INPUT)
        if not judged.calls and owed.request is None:
            ending = await self._ending(step, owed, _added(run.usage, usage))
            took_ms = engine.now_ms() - run.turn_started_ms
            last = end_frames(ending, took_ms, _added(run.usage, usage))
        return StepCommit(
            commit_id=commit_id,
            messages=added,
            usage=usage,
            rules_v=rules_v,
            calls=judged.calls,
            gates=[opened.gate for opened in judged.gates],
            pause=pause,
            times=times,
            fanout=fanout,
            ending=ending,
            frames=[
                *frames,
                *step_frames(judged, frame(MODEL_END, step=run.step + 1, usage=usage)),
                *last,
            ],
            saved=step.saved,
        )

    async def _ending(self, step: Step, owed: Answer, usage: Mapping[str, int]) -> Ending:
        engine, run = self._engine, self.run
        if owed.failure is not None:
            return Ending(
                status="failed",
                event=engine.publisher.ended(
                    run, "failed", error=owed.failure, error_code=OUTPUT_INVALID, usage=usage
                ),
                fanout=await engine.insist(engine.publisher.fanout, run, events.RUN_FAILED),
                error=owed.failure,
                error_code=OUTPUT_INVALID,
            )
        output = step.text
        if owed.found is not None and not output:
            output = compact(owed.found)
        return Ending(
            status="completed",
            event=engine.publisher.ended(
                run, "completed", output=output, output_data=owed.found, usage=usage
            ),
            fanout=await engine.insist(engine.publisher.fanout, run, events.RUN_COMPLETED),
            output=output,
            output_data=owed.found,
        )

    def _advance(self, judged: JudgedStep, usage: Mapping[str, int], wake: str) -> None:
        """The copy after a commit: what the script has just written."""
        opened = 1 if judged.gates else 0
        self.run = replace(
            self.run,
            phase="calls" if judged.calls else "model",
            step=self.run.step + 1,
            turn_steps=self.run.turn_steps + 1,
            pause_n=self.run.pause_n + opened,
            open=len(judged.gates),
            takeovers=0,
            usage=_added(self.run.usage, usage),
            wake=wake,
        )
        self.calls = fresh_calls(judged.calls)

    def _results(self) -> list[Message]:
        """The tool message of the step that is done, in the order the model asked."""
        if self.run.phase != "calls":
            return []
        run = self.run
        at_ms = self._engine.now_ms()
        return [results_message(self.calls, turn=run.turn, step=run.step, at_ms=at_ms)]

    async def _fail(self, code: str, text: str) -> None:
        engine = self._engine
        while True:
            fanout = await engine.insist(engine.publisher.fanout, self.run, events.RUN_FAILED)
            ending = Ending(
                status="failed",
                event=engine.publisher.ended(self.run, "failed", error=text, error_code=code),
                fanout=fanout,
                error=text,
                error_code=code,
            )
            try:
                await engine.insist(
                    engine.store.steps.fail,
                    self.run,
                    ending,
                    [frame("error", error=text, error_code=code)],
                )
            except StaleError:
                await self.moved()
                continue
            logger.info("run_failed run=%d code=%s", self.run.id, code)
            return


def _added(total: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: n + more.get(name, 0) for name, n in total.items()}
