"""A world of runs for random schedules: three processes' worth of caches on a real store.

Engine A's store can be told to die, to lose a reply or to be overtaken before or after any script;
engine B takes over; an office decides, switches, cancels and changes rules. Every committed start
of a call is checked on the spot against what stands in the store at that moment; all else by
``check`` whenever nobody moves.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from signoff.canonical import digest
from signoff.domain import event as events
from signoff.domain.call import Call
from signoff.domain.decision import Decision, mode_fingerprint
from signoff.domain.error import LeaseLostError, StaleError, UnavailableError
from signoff.domain.gate import Gate
from signoff.domain.message import ToolResult, ToolUse
from signoff.domain.mode import Mode
from signoff.domain.rule import Verdict, denied_by
from signoff.domain.subject import Subject
from signoff.store.catalog import Catalog
from signoff.store.decisions import Decided
from signoff.store.facade import Store, open_store
from signoff.store.records import RunRecord
from signoff.tooldef import Tool, current_call, tool
from tests.conftest import SECRET_KEY
from tests.integration.store.conftest import SHARD
from tests.integration.workers.conftest import ACCOUNT, Bench
from tests.time_travel import do_due, pass_time
from webhooks.publish import Publisher
from workers.driver import Driver
from workers.engine import Engine
from workers.history import Histories
from workers.judging import Judging
from workers.model.scripted import ScriptedModel
from workers.tools import Tools

QUESTION = {
    "question": "Which?",
    "header": "H",
    "multiSelect": False,
    "options": [{"label": "A"}, {"label": "B"}],
}
INPUTS: dict[str, dict[str, Any]] = {"AskUserQuestion": {"questions": [QUESTION]}}
TOOLS = ("look", "send", "put", "outside")
READS, ONCE = {"look"}, {"send"}


class Died(Exception):  # noqa: N818 - not an error of the product
    """The process of engine A ends here."""


def require(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


@dataclass(kw_only=True)
class Fault:
    """What happens at a script of the next drive: the ``at``-th of its name, or of all (``""``)."""

    kind: str
    script: str
    at: int
    act: Callable[[], Awaitable[Any]] | None = None


class World:
    """The store, its three users, and what they were told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.ids = itertools.count(1)
        self.lock = asyncio.Lock()
        self.fault: Fault | None = None
        self.runs: list[int] = []
        self.verdicts: dict[str, str] = {}
        self.resumed: dict[int, int] = defaultdict(int)
        self.refused: set[tuple[int, str]] = set()
        self.ended: dict[int, Any] = {}
        self.settled: dict[str, Any] = {}
        self.granted: dict[tuple[str, int], str] = {}
        self.attempts: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.violations: list[str] = []
        self.zombies: list[Driver] = []
        self.nudges = False
        self.driver: Driver | None = None

    async def open(self) -> None:
        tools = self._tools()
        self.a, self.b, self.office = (self._bench(tools) for _ in range(3))
        await self.a.store.connection.call("FLUSHALL")
        await self.a.store.scripts.load()
        for bench in (self.a, self.b):
            self._watch(bench.store, faulty=bench is self.a)
        self.endpoints = [
            (
                await self.office.store.endpoints.create(
                    account=ACCOUNT,
                    user_id=user,
                    url="https://a.example",
                    events=sorted(events.EVENT_TYPES),
                    signature="standard",
                    secret="s",
                    now_ms=0,
                )
            ).id
            for user in (None, "u")
        ]

    async def close(self) -> None:
        for bench in (self.a, self.b, self.office):
            await bench.store.close()

    def _new_id(self) -> str:
        return f"id{next(self.ids)}"

    def _bench(self, tools: dict[str, Tool]) -> Bench:
        store = open_store(self._url, secret_keys=[SECRET_KEY], lease_s=30.0)
        engine = Engine(
            store=store,
            publisher=Publisher(store.catalog, now_ms=lambda: 1, token=self._new_id),
            tools=Tools(tools),
            judging=Judging(lambda: f"req_{self._new_id()}"),
            model=ScriptedModel(),
            histories=Histories(store.runs),
            now_ms=lambda: 1,
            new_id=self._new_id,
            lease_s=30.0,
            hint=lambda _shard, _run_id: None,
            sleep=lambda _seconds: asyncio.sleep(0),
        )
        return Bench(store=store, engine=engine, tools=tools, log=[])

    # -- what the tools and the scripts are watched for ----------------------------------------

    def _tools(self) -> dict[str, Tool]:
        async def note(name: str, what: str) -> str:
            context = current_call()
            # Without the name of the store, which is not known where starts are committed.
            start = (context.idempotency_key.partition(":")[2], context.attempt)
            bound = self.granted.pop(start, None)
            if bound != context.digest or bound != digest(name, {"what": what}):
                self.violations.append(f"{name} ran {what!r} as {start} on the grant of {bound}")
            await asyncio.sleep(0)
            return f"did {what}"

        @tool(read_only=True)
        async def look(what: str) -> str:
            return await note("look", what)

        @tool
        async def send(what: str) -> str:
            return await note("send", what)

        @tool(idempotent=True)
        async def put(what: str) -> str:
            return await note("put", what)

        @tool(external=True)
        async def outside(what: str) -> str:
            return await note("outside", what)

        return {item.name: item for item in (look, send, put, outside)}

    def _watch(self, store: Store, *, faulty: bool) -> None:
        original = store.scripts.run

        async def run(name: str, prefix: str, args: Any) -> Any:
            fault = self._due_fault(name) if faulty else None
            if fault is not None and fault.act is not None:
                await fault.act()
                if self.nudges and self.driver is not None:
                    self.driver.nudge.set()
            if fault is not None and fault.kind == "die before":
                raise Died
            reply = await original(name, prefix, args)
            if name == "start_call" and reply[0] == b"ok":
                await self._check_start(args.control)
            if fault is not None and fault.kind == "die after":
                raise Died
            if fault is not None and fault.kind == "lose reply":
                raise UnavailableError("lost")
            return reply

        async def one_at_a_time(name: str, prefix: str, args: Any) -> Any:
            # So that nothing happens between a start and the look at what it rests on.
            async with self.lock:
                return await run(name, prefix, args)

        store.scripts.run = one_at_a_time if faulty else run  # type: ignore[method-assign]

    def _due_fault(self, name: str) -> Fault | None:
        if self.fault is None or self.fault.script not in (name, ""):
            return None
        self.fault.at -= 1
        if self.fault.at >= 0:
            return None
        fault, self.fault = self.fault, None
        return fault

    async def _check_start(self, control: dict[str, Any]) -> None:
        store, run_id = self.office.store, int(control["id"])
        run = await store.runs.load(ACCOUNT, run_id)
        call = (await store.runs.calls(run_id))[int(control["n"])]
        rules = (await Catalog(store.connection, store.shards).rules(ACCOUNT, run_id)).rules
        try:
            await self._check_grant(run, call, rules)
            self._check_attempt(run, call)
        except AssertionError as error:
            self.violations.append(f"run {run_id} call {call.id} ({call.grant}): {error}")
        self.granted[(f"{run_id}:{run.step}:{call.id}", call.attempt)] = call.run_digest

    async def _check_grant(self, run: RunRecord, call: Call, rules: Any) -> None:
        require(not run.status.terminal, "started after the end")
        require(call.state == "started", f"is {call.state}")
        require(
            denied_by(Subject(call.tool, {}), user_id=run.user_id, rules=rules, now_ms=0) is None,
            "a rule denies it",
        )
        require((run.id, call.id) not in self.refused, "was denied")
        bound = digest(call.tool, json.loads(call.effective_json))
        require(call.run_digest == bound, "the digest is not that of the bytes")
        kind, _, name = call.grant.partition(":")
        if kind == "gate" or (kind == "mode" and name):
            (gate,) = await self.office.store.runs.gates_by_id(run.id, [name])
            require(gate.tool_use_id == call.id, "the gate is another call's")
            require(gate.state == "allowed", "the gate does not allow")
            require((gate.effective_digest or gate.digest) == bound, "another digest was allowed")
            require(self.verdicts.get(name) == "allow", "nobody was told that it is allowed")
            require(kind == "gate" or run.mode is Mode.AUTONOMOUS, "the mode is gone")
            return
        require(call.run_digest == call.digest, "edited without a gate")
        covering = [r for r in rules if r.covers(Subject(call.tool, {}), run.user_id)]
        require(not any(r.effect is Verdict.ASK for r in covering), "a rule asks")
        guarded = run.mode is Mode.PLAN and not run.plan_approved
        require(call.tool in READS or not guarded, "no plan is approved")
        if kind == "rule":
            allows = [r for r in covering if r.effect is Verdict.ALLOW and str(r.id) == name]
            require(allows, "the rule is gone")
        elif kind == "remembered":
            require(run.remembered.get(call.tool) == "", "nothing is remembered")
        elif kind == "read_only":
            require(call.tool in READS, "it does not only read")
        else:
            require(kind == "mode" and run.mode is Mode.AUTONOMOUS, "there is no grant")

    def _check_attempt(self, run: RunRecord, call: Call) -> None:
        made = self.attempts[f"{run.id}:{run.step}:{call.id}"]
        if made and made[-1] == (call.attempt, call.grant):
            return  # the same start, sent again after a lost reply
        require(not made or call.attempt > made[-1][0], "an attempt has an old number")
        if call.tool in ONCE:
            require(call.grant not in [grant for _, grant in made], "a second start on one grant")
        made.append((call.attempt, call.grant))

    # -- moves ---------------------------------------------------------------------------------

    async def fresh(self, move: Callable[[], Awaitable[Any]]) -> Any:
        """A move of the office, made again while what it read was old."""
        for _ in range(4):
            try:
                return await move()
            except StaleError as error:
                if error.details.get("what") == "terminal":
                    return None
                self.office.store.catalog.forget(ACCOUNT)
        raise AssertionError("the run keeps moving although nobody moves it")

    async def create(self, script: list[dict[str, Any]], **options: Any) -> None:
        self.runs.append(await self.fresh(lambda: self.office.create(script, **options)))

    async def drive(self, bench: Bench) -> None:
        """Drives all that is ready; what died or was overtaken has its lease ended."""
        while held := await self._take(bench):
            for item in held:
                driver = Driver(bench.engine, item)
                await self._one(driver)

    async def _one(self, driver: Driver) -> None:
        self.driver = driver
        try:
            await driver.drive()
        except (Died, LeaseLostError):
            await self.expire(driver.run.id)
        finally:
            self.driver = None

    async def _take(self, bench: Bench) -> list[Any]:
        fault, self.fault = self.fault, None
        held = await bench.store.steps.take(0, drainer="d", room=10, awake_ms=1)
        self.fault = fault
        return held

    async def expire(self, run_id: int) -> None:
        """The lease ends, if there is one, and the sweeper comes."""
        connection, key = self.office.store.connection, f"{SHARD}run:{run_id}"
        if await connection.call("HGET", key, "lease_until") != b"0":
            await connection.calls(
                ("HSET", key, "lease_until", "1"), ("ZADD", f"{SHARD}leases", 1, str(run_id))
            )
        await self.office.store.steps.sweep(0)

    async def overtaken(self) -> None:
        """The lease of the run that A drives ends, and B goes on with everything."""
        if self.driver is not None:
            await self.expire(self.driver.run.id)
            mine, self.driver = self.driver, None
            await self.drive(self.b)
            self.driver = mine

    async def hold(self) -> None:
        """A takes runs and falls asleep; their leases end."""
        for item in await self._take(self.a):
            self.zombies.append(Driver(self.a.engine, item))
            await self.expire(item.run.id)

    async def wake_zombies(self) -> None:
        zombies, self.zombies = self.zombies, []
        for driver in zombies:
            await self._one(driver)

    async def pending(self) -> list[tuple[int, Gate]]:
        return [(n, gate) for n in self.runs for gate in await self.office.gates(n)]

    async def decide(self, run_id: int, *decisions: Decision) -> Decided:
        decided: Decided = await self.fresh(lambda: self.office.decide(run_id, *decisions))
        gates = {gate.id: gate for gate in await self.office.store.runs.gates(run_id)}
        for decision, outcome in zip(decisions, decided.outcomes, strict=True):
            if decided.accepted and outcome.applied:
                verdict = decision.verdict or "answered"
                require(decision.request_id not in self.verdicts, "two verdicts were new")
                self.verdicts[decision.request_id] = verdict
                if verdict == "deny":
                    gate = gates[decision.request_id]
                    self.refused.add((run_id, gate.tool_use_id))
        fresh = any(outcome.applied for outcome in decided.outcomes)
        if decided.accepted and decided.resumed and fresh:
            self.resumed[run_id] += 1
        return decided

    async def remember(self, run_id: int, gate: Gate, *, stored: bool) -> None:
        """An allow that is remembered; the process may die before the policy is stored."""
        await self.decide(run_id, Decision(request_id=gate.id, verdict="allow", remember=True))
        run = await self.office.store.runs.load(ACCOUNT, run_id)
        if stored and run.remembered.get(gate.tool) == "":
            made = await self.office.store.policies.put(
                account=ACCOUNT,
                user_id=run.user_id,
                tool=gate.tool,
                effect=Verdict.ALLOW,
                source="run_approval",
                now_ms=1,
            )
            tools = {gate.tool: made.rule.id}
            await self.office.store.decisions.remembered(run, gate.id, tools)

    async def switch(self, run_id: int, mode: Mode) -> None:
        store = self.office.store

        async def move() -> None:
            run, gates = await store.runs.load_with_gates(ACCOUNT, run_id)
            ruleset = await store.catalog.rules(ACCOUNT, run_id)
            allow = [
                gate
                for gate in gates
                if mode is Mode.AUTONOMOUS
                and (gate.state, gate.kind) == ("pending", "tool_approval")
                and denied_by(
                    Subject(gate.tool, {}), user_id=run.user_id, rules=ruleset.rules, now_ms=0
                )
                is None
            ]
            await store.decisions.switch_mode(
                run,
                mode,
                by="tester",
                allow=[(gate.id, mode_fingerprint(gate)) for gate in allow],
                rules_v=ruleset.version,
                resumed=self.office.engine.publisher.run_event(
                    run, events.RUN_RESUMED, status="running"
                ),
                fanout=await self.office.engine.publisher.fanout(run, events.RUN_RESUMED),
            )
            self.verdicts.update({gate.id: "allow" for gate in allow})
            self.resumed[run_id] += bool(allow) and len(allow) == run.open

        await self.fresh(move)

    async def cancel(self, run_id: int) -> None:
        store = self.office.store

        async def move() -> None:
            run, calls = await asyncio.gather(
                store.runs.load(ACCOUNT, run_id), store.runs.calls(run_id)
            )
            await store.decisions.cancel(
                run,
                by="tester",
                results={
                    call.n: {"state": "interrupted", "content": "cancelled"}
                    for call in calls
                    if call.state != "done"
                },
                message=None,
                cancelled=self.office.engine.publisher.ended(run, "cancelled"),
                fanout=await self.office.engine.publisher.fanout(run, events.RUN_CANCELLED),
            )

        await self.fresh(move)

    async def time_passes(self, seconds: float) -> None:
        """Gates age; whatever is due then is done."""
        store = self.office.store
        before = {gate.id: run_id for run_id, gate in await self.pending()}
        open_before = {n: (await store.runs.load(ACCOUNT, n)).open for n in self.runs}
        await pass_time(store, seconds)
        await do_due(store, self.office.engine.publisher)
        settled: dict[int, int] = defaultdict(int)
        for run_id in set(before.values()):
            for gate in await store.runs.gates(run_id):
                if gate.id not in before or gate.state == "pending":
                    continue
                require(gate.decided_by == "expiry", f"{gate.id} was settled by time")
                if gate.state == "cancelled":
                    continue
                settled[run_id] += 1
                self.verdicts[gate.id] = "deny" if gate.state == "denied" else "answered"
                if gate.state == "denied":
                    self.refused.add((run_id, gate.tool_use_id))
        for run_id, count in settled.items():
            self.resumed[run_id] += count == open_before[run_id]

    async def add_rule(self, tool_name: str, effect: Verdict, user: str | None) -> None:
        await self.office.store.policies.put(
            account=ACCOUNT, user_id=user, tool=tool_name, effect=effect, source="api", now_ms=1
        )

    async def drop_rule(self, pick: int) -> None:
        policies = self.office.store.policies
        rules = [r for user in (None, "u") for r in await policies.list(ACCOUNT, user)]
        if rules:
            chosen = rules[pick % len(rules)]
            await policies.delete(ACCOUNT, chosen.user_id, chosen.id)

    # -- what must hold whenever nobody moves --------------------------------------------------

    async def check(self) -> None:
        require(not self.violations, "; ".join(self.violations))
        connection = self.office.store.connection
        ready = {int(n) for n in await connection.call("ZRANGE", f"{SHARD}ready", 0, -1)}
        announced = await self._announced()
        opened = await connection.call("ZRANGE", f"{SHARD}open:{ACCOUNT}", 0, -1)
        listed = {item.decode().partition(":")[2] for item in opened}
        pending: set[str] = set()
        for run_id in self.runs:
            run, gates = await self.office.store.runs.load_with_gates(ACCOUNT, run_id)
            calls = await self.office.store.runs.calls(run_id)
            flat = await connection.call("HGETALL", f"{SHARD}run:{run_id}")
            raw = {k.decode(): v.decode() for k, v in zip(flat[::2], flat[1::2], strict=True)}
            if run.status != "failed":  # its open gates stay for the record; nobody is asked
                pending |= {gate.id for gate in gates if gate.state == "pending"}
            self._check_counters(run, raw, calls, gates)
            self._check_progress(run, raw, run_id in ready)
            self._check_final(run, calls, gates)
            self._check_gates(gates)
            self._check_events(run, gates, announced[run_id])
            await self._check_history(run_id)
        require(listed == pending, f"the inbox lists {listed}, open are {pending}")
        await self._check_times()

    async def _check_times(self) -> None:
        """What is due belongs to a gate that is open, at its time; every such time is there."""
        rows = await self.office.store.connection.call(
            "ZRANGE", f"{SHARD}timed", 0, -1, "WITHSCORES"
        )
        found = {
            row.decode(): int(float(at)) for row, at in zip(rows[::2], rows[1::2], strict=True)
        }
        expected: dict[str, int] = {}
        optional: dict[str, int] = {}
        for run_id, gate in await self.pending():
            at = f"{run_id}:{gate.pause}"
            if gate.expires_ms is not None:
                expected[f"{at}:expire"] = gate.expires_ms
            if gate.remind_ms is not None:
                optional[f"{at}:remind"] = gate.remind_ms
        kept = {name: at for name, at in found.items() if name not in optional}
        require(kept == expected, f"due are {found}, open gates say {expected}")
        reminders = {name: at for name, at in found.items() if name in optional}
        require(reminders.items() <= optional.items(), f"reminders {reminders}, not {optional}")

    def _check_counters(
        self, run: RunRecord, raw: dict[str, str], calls: list[Call], gates: list[Gate]
    ) -> None:
        pending = sorted(gate.tool_use_id for gate in gates if gate.state == "pending")
        states = [call.state.value for call in calls]
        found = {name: int(raw[name]) for name in ("open", "todo", "left", "inflight")}
        require(found["open"] == len(pending), f"run {run.id}: open {found}, gates {pending}")
        if run.status.terminal:
            return
        asked = sorted(call.id for call in calls if call.state == "asked")
        require(asked == pending, f"run {run.id}: asked {asked}, open {pending}")
        expected = {
            "open": len(pending),
            "todo": states.count("allowed"),
            "left": len(states) - states.count("done"),
            "inflight": states.count("started"),
        }
        require(found == expected, f"run {run.id}: counters {found}, calls {states}")

    def _check_progress(self, run: RunRecord, raw: dict[str, str], ready: object) -> None:
        if run.status.terminal:
            require(raw["lease_until"] == "0", f"run {run.id} ended under a lease")
            return
        parked = run.status == "awaiting_approval"
        require(parked == (run.open > 0), f"run {run.id} is {run.status}, open {run.open}")
        require(raw["lease_until"] == "0", f"run {run.id} is held by nobody's lease")
        due = (
            run.phase == "model"
            or raw["todo"] != "0"
            or raw["left"] == "0"
            or raw["inflight"] != "0"
        )
        require(not due or ready, f"run {run.id} has work and is not queued")
        require(due or run.open > 0, f"run {run.id} waits for nothing")

    def _check_final(self, run: RunRecord, calls: list[Call], gates: list[Gate]) -> None:
        if not run.status.terminal:
            require(run.id not in self.ended, f"run {run.id} came back to life")
            return
        seen = (
            run.status,
            run.fence,
            run.step,
            run.output,
            run.error_code,
            [(call.state, call.result, call.attempt) for call in calls],
            [(gate.id, gate.state, gate.fingerprint) for gate in gates],
        )
        require(self.ended.setdefault(run.id, seen) == seen, f"run {run.id} changed after its end")

    def _check_gates(self, gates: list[Gate]) -> None:
        for gate in gates:
            if gate.state == "pending":
                require(gate.id not in self.verdicts, f"{gate.id} lost its verdict")
                continue
            seen = (gate.state, gate.fingerprint, gate.decided_by, gate.effective_digest)
            require(self.settled.setdefault(gate.id, seen) == seen, f"{gate.id} changed")
            told = self.verdicts.get(gate.id, "cancelled")
            expected = {"allow": "allowed", "answered": "allowed", "deny": "denied"}
            require(
                gate.state == expected.get(told, told), f"{gate.id} is {gate.state}, told {told}"
            )

    async def _announced(self) -> dict[int, list[tuple[str, str, dict[str, Any]]]]:
        """Per run the deliveries it has: (type, pause, body)."""
        connection = self.office.store.connection
        found: dict[int, list[tuple[str, str, dict[str, Any]]]] = defaultdict(list)
        for endpoint in self.endpoints:
            ids = await connection.call("ZRANGE", f"{SHARD}dlvs:{endpoint}", 0, -1)
            rows = await connection.calls(
                *(("HMGET", f"{SHARD}dlv:{n.decode()}", "run", "type", "pause", "ev") for n in ids)
            )
            bodies = await connection.calls(
                *(("HGET", f"{SHARD}ev:{row[3].decode()}", "body") for row in rows)
            )
            for row, body in zip(rows, bodies, strict=True):
                payload = json.loads(body)["data"]
                found[int(row[0])].append((row[1].decode(), row[2].decode(), payload))
        return found

    def _check_events(
        self, run: RunRecord, gates: list[Gate], announced: list[tuple[str, str, dict[str, Any]]]
    ) -> None:
        pauses = [(n, body) for kind, n, body in announced if kind == events.RUN_AWAITING_INPUT]
        numbers = [int(n) for n, _ in pauses]
        expected = list(range(1, run.pause_n + 1))
        require(numbers == expected, f"run {run.id}: pauses {expected}, announced {numbers}")
        for number, body in pauses:
            require(str(body["pause"]) == number, f"run {run.id}: the event of {number} is wrong")
            shown = {(item["request_id"], item["digest"]) for item in body["requests"]}
            kept = {(gate.id, gate.digest) for gate in gates if str(gate.pause) == number}
            require(shown == kept, f"run {run.id}: pause {number} shows {shown}, has {kept}")
        kinds = [kind for kind, _, _ in announced]
        require(kinds.count(events.RUN_STARTED) == 1, f"run {run.id}: {kinds}")
        require(
            kinds.count(events.RUN_RESUMED) == self.resumed[run.id],
            f"run {run.id}: resumed {self.resumed[run.id]} times, {kinds}",
        )
        ends = [kind for kind in kinds if kind.removeprefix("run.") in ("completed", "failed")]
        ends += [kind for kind in kinds if kind == events.RUN_CANCELLED]
        expected_ends = [f"run.{run.status}"] if run.status.terminal else []
        require(ends == expected_ends, f"run {run.id}: {run.status}, announced {ends}")

    async def _check_history(self, run_id: int) -> None:
        messages = await self.office.store.runs.history(run_id)
        for message, following in itertools.pairwise(messages):
            asked = [block.id for block in message.blocks if isinstance(block, ToolUse)]
            got = [b.tool_use_id for b in following.blocks if isinstance(b, ToolResult)]
            require(asked == got, f"run {run_id}: asked {asked}, the model saw {got}")


def decision_for(gate: Gate, form: str) -> Decision:
    """A decision that fits the gate's kind; ``form`` says which of those there are."""
    made: dict[str, dict[str, Any]] = {
        "question": {"answers": {"Which?": "A" if form == "allow" else "own words"}},
        "plan": {"answers": {"Plan Approval": "Approve" if form == "allow" else "shorter"}},
        "external": {"result": {"output": form}},
        "tool_approval": {"verdict": "deny" if form == "deny" else "allow"},
        "outcome_unknown": {"verdict": "deny" if form == "deny" else "allow"},
    }
    fields = made[gate.kind.value]
    if form == "edit" and gate.kind == "tool_approval":
        fields["input"] = {"what": "edited"}
    if form == "result" and gate.kind == "outcome_unknown":
        fields = {"result": {"output": "it had worked"}}
    return Decision(request_id=gate.id, **fields)


def script_of(turns_: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for t, turn in enumerate(turns_):
        if "plan" in turn:
            made.append({"plan": f"plan {t}"})
            continue
        made.append(
            {
                "tool_calls": [
                    {"id": f"t{t}c{n}", "name": name, "input": INPUTS.get(name, {"what": name})}
                    for n, name in enumerate(turn["calls"])
                ]
            }
        )
    return made
