"""Drives one held run: calls, then the model, until it parks, ends, or the lease is gone.

Everything durable goes through the store's scripts under the fence; what this object keeps in
memory is a copy that may be dropped at any point.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from signoff.agents import Advance, Agent, AgentFailedError, Step
from signoff.domain.call import Call, CallState, next_moves, results_message
from signoff.domain.error import LeaseLostError, StaleError, UnavailableError
from signoff.domain.frame import MODEL_START, frame, gate_frames
from signoff.domain.gate import GateKind
from signoff.domain.message import Message, NewerFormatError
from signoff.domain.run import MAX_TURNS_EXCEEDED
from signoff.store.records import RunRecord
from signoff.store.steps import Held
from signoff.tooldef import Tool
from signoff.wire.run import MAX_TURNS
from workers.agent.native import NativeAgent
from workers.agent.terms import words_of
from workers.asking import agent_run, ask_agent, demand, spoken, tools_for
from workers.commit import Reply, added, failed, pause_of, step_commit
from workers.engine import Engine
from workers.execution import Execution
from workers.frames import earlier_frames
from workers.judging import Basis, JudgedStep, as_declared, fresh_calls
from workers.output import answer_of
from workers.turns import next_turn

logger = logging.getLogger(__name__)
MAX_TAKEOVERS = 5
#: What may go wrong between an agent's answer and its commit whatever the answer is.
NO_FAULT_OF_AGENTS = (
    LeaseLostError,
    MemoryError,
    NewerFormatError,
    OSError,
    StaleError,
    UnavailableError,
)


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
        self.calls = as_declared(self.calls, self.tools)
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
        self.tools = await tools_for(named, agent_run(run, self._offered), self._saved)

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
        return run, as_declared(calls, self.tools)

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
        # Made once: a repeat after a lost reply must not open others.
        opened = [engine.judging.reopened(call, kind, self.tools) for call in calls]
        while True:
            ruleset = await engine.insist(engine.store.catalog.rules, self.run.account, self.run.id)
            basis = Basis(rules=ruleset.rules, tools=self.tools, now_ms=engine.now_ms())
            opened = [
                engine.judging.entrusted(self.run, one, call, basis)
                for one, call in zip(opened, calls, strict=True)
            ]
            pause = await pause_of(engine, self.run, opened)
            frames = [
                shown
                for row, call in zip(pause.rows, calls, strict=True)
                for shown in gate_frames(row, call.id)
            ]
            try:
                await engine.insist(
                    engine.store.steps.ask_again,
                    self.run,
                    [one.gate for one in opened],
                    pause=pause.event,
                    fanout=pause.fanout,
                    rules_v=ruleset.version,
                    times=pause.times,
                    frames=frames,
                )
            except StaleError as error:
                await self.moved()
                if error.details.get("what") == "calls":
                    return  # one of them moved on meanwhile; the caller looks again
                continue
            break
        await self.refresh()

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
        self.run, self.calls = held.run, as_declared(held.calls, self.tools)
        return False

    # -- agent ---------------------------------------------------------------------------------

    async def _ask(self) -> bool:
        """One step of the agent and its commit; True when the lease ended with it."""
        engine, run = self._engine, self.run
        if run.turn_steps >= int(run.config.get("max_turns", MAX_TURNS)):
            await self._fail(MAX_TURNS_EXCEEDED, "the turn reached its limit of model calls")
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
        try:
            released = await self._accept(step, frames, results, turn)
        except Exception as error:
            if isinstance(self._agent, NativeAgent) or isinstance(error, NO_FAULT_OF_AGENTS):
                raise
            # The next holder would be given the same answer, and come to the same end.
            logger.exception("agent_answer_failed run=%d", run.id)
            await self._fail("agent_error", f"the answer cannot be taken: {words_of(error)}")
            return True
        if step.saved is not None:
            self._saved = step.saved
        if self._saved is None or released:
            return released
        try:
            # Its tools may work on what it has just saved.
            work = agent_run(self.run, self._offered)
            self.tools = await tools_for(self._agent, work, self._saved)
        except AgentFailedError as error:
            await self._fail(error.code, error.message)
            return True
        return False

    async def _accept(
        self, step: Step, frames: Sequence[bytes], results: Sequence[Message], turn: Advance
    ) -> bool:
        """Commits the step with what it comes to; True when the lease ended with it."""
        said = spoken(step, self.run, self._engine.now_ms())
        owed = answer_of(self.run, step, turn.messages)
        reply = Reply(
            commit_id=self._engine.new_id(),
            step=step,
            owed=owed,
            messages=[*results, *said, *owed.messages(said[-1])],
            frames=[*frames, *earlier_frames(step), *owed.frames()],
        )
        released = await self._commit(reply)
        self._engine.histories.add(self.run.id, reply.messages)
        return released

    async def _count(self, name: str) -> int:
        return await self._engine.store.runs.count(self.run.id, name)

    async def _commit(self, reply: Reply) -> bool:
        engine = self._engine
        while True:
            ruleset = await engine.insist(engine.store.catalog.rules, self.run.account, self.run.id)
            basis = Basis(
                rules=ruleset.rules,
                tools=self.tools,
                now_ms=engine.now_ms(),
                refusals=reply.owed.refusals,
            )
            judged = engine.judging.step(self.run, reply.calls, basis)
            commit = await step_commit(engine, self.run, reply, judged, rules_v=ruleset.version)
            try:
                released, wake = await engine.insist(engine.store.steps.commit, self.run, commit)
            except StaleError:
                await self.moved()
                continue
            if not released:
                self._advance(judged, commit.usage, wake)
            return released

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
            usage=added(self.run.usage, usage),
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
            ending = await failed(engine, self.run, code, text)
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
