"""One call from its grant to its result: checked once more, started, run, settled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from signoff.domain.call import Call, CallState
from signoff.domain.error import StaleError
from signoff.domain.frame import result_frames
from signoff.domain.gate import GateKind
from signoff.domain.rule import Judgement, Rule, Verdict
from signoff.store.records import RunRecord
from signoff.tooldef import Tool
from workers.engine import Engine
from workers.executor import UNKNOWN_OUTCOME, execute
from workers.judging import Basis, effect_of, refusal


class Holder(Protocol):
    """The driver of the run, as far as one of its calls needs it."""

    run: RunRecord
    calls: list[Call]
    tools: Mapping[str, Tool]

    async def moved(self) -> None:
        """Reads the run again after a version moved; raises LeaseLostError when it was taken."""

    async def ask_again(self, calls: Sequence[Call], kind: GateKind) -> None:
        """Opens gates for calls that may not run as they stand."""


class Execution:
    """The way of one call; the driver's copy of the run is read, never changed, but by refresh."""

    def __init__(self, engine: Engine, driver: Holder, call: Call) -> None:
        self._engine = engine
        self._driver = driver
        self._call = call
        #: The rule that has counted this call, and those that let no further one start.
        self._counted: Rule | None = None
        self._last = False
        self._spent: set[int] = set()

    async def finish(self) -> Call:
        """The call with its result, or asked again when its grant is gone."""
        while True:
            if self._call.state is CallState.STARTED and not self._still_repeatable():
                return await self.unknown()
            judgement, version = await self._judge()
            if not await self._count(judgement):
                continue
            if judgement.verdict is Verdict.ASK:
                return await self._ask()
            if judgement.verdict is not Verdict.ALLOW:
                state, content = refusal(judgement)
                return await self._settle({"state": state, "content": content})
            attempt, asked = self._call.attempt + 1, asyncio.get_running_loop().time()
            try:
                await self._engine.insist(
                    self._engine.store.steps.start_call,
                    self._driver.run,
                    self._call,
                    rules_v=version,
                    attempt=attempt,
                )
            except StaleError:
                await self._driver.moved()
                self._call = self._driver.calls[self._call.n]
                if self._call.state not in (CallState.ALLOWED, CallState.STARTED):
                    await self._uncount()
                    return self._call
                continue
            self._call = replace(self._call, state=CallState.STARTED, attempt=attempt)
            await self._announce_last()
            installation = await self._engine.insist(self._engine.store.layout.installation)
            if asyncio.get_running_loop().time() - asked > self._engine.lease_s / 2:
                # The process was stopped, or the store away: by now somebody else may have taken
                # the run over, and asked a person about this very start.
                await self._driver.moved()
            return await self._run(installation)

    async def unknown(self) -> Call:
        """The call settled as unknown, for runs in which nobody can be asked."""
        return await self._settle({"state": "error", "content": UNKNOWN_OUTCOME})

    def _still_repeatable(self) -> bool:
        """Whether the tool is there and says so now; it did when the call was cut off."""
        tool = self._driver.tools.get(self._call.tool)
        return tool is not None and effect_of(tool).repeatable

    async def _run(self, installation: str) -> Call:
        run = self._driver.run
        result = await execute(
            self._driver.tools.get(self._call.tool),
            self._call,
            run_id=run.id,
            step=run.step,
            attempt=self._call.attempt,
            installation=installation,
        )
        return await self._settle(result)

    async def _judge(self) -> tuple[Judgement, str]:
        run = self._driver.run
        ruleset = await self._engine.insist(self._engine.store.catalog.rules, run.account, run.id)
        basis = Basis(
            rules=[self._as_counted(rule) for rule in ruleset.rules if rule.id not in self._spent],
            tools=self._driver.tools,
            now_ms=self._engine.now_ms(),
        )
        return self._engine.judging.again(run, self._call, basis), ruleset.version

    def _as_counted(self, rule: Rule) -> Rule:
        """A rule that this very call used up still covers it."""
        if self._counted is None or rule.id != self._counted.id:
            return rule
        return replace(rule, max_uses=None)

    async def _count(self, judgement: Judgement) -> bool:
        """Has the rule that allows the call count it; False when it lets no further call start.

        Counted before the start and once a call: never more calls start than the rule says.
        """
        rule = judgement.rule if judgement.verdict is Verdict.ALLOW else None
        if self._counted is not None and (rule is None or rule.id != self._counted.id):
            await self._uncount()
        if rule is None or self._counted is not None:
            return True
        engine, run = self._engine, self._driver.run
        use = await engine.insist(
            engine.store.policies.use, run.account, rule.id, self._counted_as()
        )
        if not use.granted:
            self._spent.add(rule.id)
            return False
        self._counted, self._last = rule, use.last
        return True

    async def _uncount(self) -> None:
        if self._counted is not None:
            engine, account = self._engine, self._driver.run.account
            rule, self._counted = self._counted, None
            await engine.insist(engine.store.policies.unuse, account, rule.id, self._counted_as())

    async def _announce_last(self) -> None:
        """The rule is used up: nobody is to rest on a copy that does not say so."""
        if self._counted is not None and self._last:
            engine, account = self._engine, self._driver.run.account
            await engine.insist(engine.store.catalog.bump, account, "rules")

    def _counted_as(self) -> str:
        run = self._driver.run
        return f"{run.id}:{run.step}:{self._call.n}"

    async def _ask(self) -> Call:
        if self._call.state is CallState.STARTED:
            # A repeatable call that was cut off and may not be repeated unasked any more.
            return await self._settle({"state": "error", "content": UNKNOWN_OUTCOME})
        await self._driver.ask_again([self._call], GateKind.TOOL_APPROVAL)
        return self._driver.calls[self._call.n]

    async def _settle(self, result: dict[str, str]) -> Call:
        call = self._call
        attempt = call.attempt if call.state is CallState.STARTED else 0
        await self._engine.insist(
            self._engine.store.steps.finish_call,
            self._driver.run,
            call,
            attempt=attempt,
            result=result,
            frames=result_frames(call.id, result),
        )
        return replace(call, state=CallState.DONE, result=dict(result))
