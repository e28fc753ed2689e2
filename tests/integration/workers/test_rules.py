"""Rules at work: judged at the step, judged again at the start, counted, and run by a person."""

from __future__ import annotations

from typing import Any

import pytest

from signoff.domain.approval import Approval
from signoff.domain.decision import Decision
from signoff.domain.error import LeaseLostError
from signoff.domain.rule import Rule, Verdict
from signoff.tooldef import current_call, tool
from tests.integration.workers.conftest import ACCOUNT, Bench, calls
from workers.driver import Driver

pytestmark = pytest.mark.anyio


@pytest.fixture
def shell(bench: Bench, log: list[str]) -> Bench:
    """The bench with a shell tool that only notes its commands."""

    @tool(patterns="shell")
    def Bash(command: str) -> str:  # noqa: N802 - the name models know
        log.append(f"{current_call().tool_use_id}:{command}")
        return "ran"

    bench.tools["Bash"] = Bash
    return bench


async def store_rule(bench: Bench, text: str, effect: str = "allow", **limits: Any) -> Rule:
    put = await bench.store.policies.put(
        account=ACCOUNT,
        user_id=limits.pop("user_id", None),
        tool=text,
        effect=Verdict(effect),
        source="api",
        now_ms=0,
        **limits,
    )
    return put.rule


def bash(*commands: str) -> dict[str, Any]:
    return calls(*((f"c{n}", "Bash", {"command": text}) for n, text in enumerate(commands)))


async def test_one_literal_command_is_allowed_and_compounds_are_asked(
    shell: Bench, log: list[str]
) -> None:
    """The prefix covers words, not what a shell makes of more; a denied part denies it all."""
    await store_rule(shell, "Bash(git status:*)")
    await store_rule(shell, "Bash(rm:*)", "deny")
    run_id = await shell.create([bash("git status -s", "git status; ls", "git status && rm x")])
    await shell.drive()
    assert log == ["c0:git status -s"]
    (gate,) = await shell.gates(run_id)
    assert (gate.tool_use_id, gate.suggested_rules) == ("c1", ())
    denied = (await shell.store.runs.calls(run_id))[2].result
    assert denied is not None
    assert denied["state"] == "denied"


async def test_remember_holds_for_the_prefix_that_the_gate_showed(
    shell: Bench, log: list[str]
) -> None:
    """The next command of the prefix runs unasked in this run; another one is asked."""
    run_id = await shell.create([bash("npm run a"), bash("npm run b"), bash("npm test")])
    await shell.drive()
    (gate,) = await shell.gates(run_id)
    assert gate.suggested_rules == ({"tool": "Bash(npm run:*)", "effect": "allow"},)
    await shell.decide(run_id, Decision(request_id=gate.id, verdict="allow", remember=True))
    run = await shell.store.runs.load(ACCOUNT, run_id)
    assert run.remembered == {"Bash(npm run:*)": ""}
    await shell.drive()
    assert log == ["c0:npm run a", "c0:npm run b"]
    (gate,) = await shell.gates(run_id)
    assert gate.tool_input == {"command": "npm test"}


async def test_t26_a_denied_call_never_runs_whatever_mode_and_rule(
    bench: Bench, log: list[str]
) -> None:
    """Denied once, repeated by the model under an allow rule and in autonomous mode: count 0."""
    call = calls(("a", "send", {"what": "x"}))
    run_id = await bench.create([call, call, {"text": "end"}])
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="deny"))
    await store_rule(bench, "send")
    await bench.drive()
    assert log == []
    assert await bench.status(run_id) == "completed"


async def test_t28_an_identical_call_after_a_deny_is_not_asked_without_end(
    bench: Bench, log: list[str]
) -> None:
    """It is denied at once and names the decision; another input is asked as ever."""
    same, other = ("a", "send", {"what": "x"}), ("b", "send", {"what": "y"})
    run_id = await bench.create([calls(same), calls(same), calls(same), calls(other)])
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="deny", reason=""))
    await bench.drive()
    first, *again = await bench.results(run_id)
    assert (first.state, first.content) == (
        "denied",
        "The user denied this tool call; it was not executed.",
    )
    assert [(item.state, "denied this very call" in item.content) for item in again] == [
        ("denied", True)
    ] * 2
    assert not any(gate.id in item.content for item in again)
    (gate,) = await bench.gates(run_id)
    assert gate.tool_input == {"what": "y"}
    assert log == []


async def test_t29_a_rule_that_changed_while_the_gate_was_open_is_heeded(
    bench: Bench, log: list[str]
) -> None:
    """A deny made after the request, even after the approval, keeps the call from starting."""
    run_id = await bench.create([calls(("a", "send", {"what": "secret plan"})), {"text": "end"}])
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="allow"))
    await store_rule(bench, "send(what=*secret*)", "deny")
    await bench.drive()
    assert log == []
    (result,) = await bench.results(run_id)
    assert result.state == "denied"


async def test_t31_a_decision_in_one_run_is_none_in_another(bench: Bench, log: list[str]) -> None:
    """Two runs wait for the same call; one approval lets one of them go on."""
    script = [calls(("a", "send", {"what": "x"})), {"text": "end"}]
    first, second = [await bench.create(script) for _ in range(2)]
    await bench.drive()
    (gate,) = await bench.gates(first)
    await bench.decide(first, Decision(request_id=gate.id, verdict="allow"))
    await bench.drive()
    assert log == ["a:x*1"]
    assert len(await bench.gates(second)) == 1


async def test_uses_are_counted_and_the_rule_ends_with_the_last(
    bench: Bench, log: list[str]
) -> None:
    """Two of three calls start unasked, also in one step; the third is asked."""
    rule = await store_rule(bench, "send", max_uses=2)
    uses = [(name, "send", {"what": name}) for name in "abc"]
    run_id = await bench.create([calls(*uses), {"text": "end"}])
    await bench.drive()
    assert log == ["a:a*1", "b:b*1"]
    (gate,) = await bench.gates(run_id)
    assert gate.tool_use_id == "c"
    (listed,) = await bench.store.policies.list(ACCOUNT, None)
    assert (listed.id, listed.uses) == (rule.id, 2)
    later = await bench.create([calls(("d", "send", {"what": "d"}))])
    await bench.drive()
    assert len(await bench.gates(later)) == 1


async def test_a_start_that_was_refused_gives_its_use_back(
    bench: Bench, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deny that comes between the count and the start: nothing runs, nothing is used."""
    rule = await store_rule(bench, "send", max_uses=1)
    run_id = await bench.create([calls(("a", "send", {"what": "a"})), {"text": "end"}])
    (held,) = await bench.take()
    use = bench.store.policies.use

    async def late_deny(account: str, rule_id: int, call: str) -> Any:
        found = await use(account, rule_id, call)
        await store_rule(bench, "send", "deny")
        return found

    monkeypatch.setattr(bench.store.policies, "use", late_deny)
    await Driver(bench.engine, held).drive()
    assert log == []
    assert await bench.status(run_id) == "completed"
    listed = {item.id: item for item in await bench.store.policies.list(ACCOUNT, None)}
    assert listed[rule.id].uses == 0


async def test_an_expired_rule_allows_nothing(bench: Bench, log: list[str]) -> None:
    """By the clock of the worker, whatever the store still lists."""
    now_ms = bench.engine.now_ms()
    await store_rule(bench, "send", expires_ms=now_ms)
    await store_rule(bench, "put", expires_ms=now_ms + 1)
    run_id = await bench.create(
        [calls(("a", "send", {"what": "a"}), ("b", "put", {"what": "b"})), {"text": "end"}]
    )
    await bench.drive()
    assert log == ["b:b"]
    assert [gate.tool_use_id for gate in await bench.gates(run_id)] == ["a"]


async def test_an_edit_is_remembered_as_it_was_edited(shell: Bench) -> None:
    """Built from what is approved; the suggestion for what was asked is not accepted then."""
    from signoff.domain.decision import settle  # noqa: PLC0415
    from signoff.domain.error import InvalidFieldError  # noqa: PLC0415
    from signoff.domain.suggestion import suggested_rules  # noqa: PLC0415
    from signoff.subject import subject  # noqa: PLC0415

    run_id = await shell.create([bash("npm run a")])
    await shell.drive()
    (gate,) = await shell.gates(run_id)

    def settled(**fields: Any) -> tuple[str, ...]:
        decision = Decision(request_id=gate.id, verdict="allow", **fields)
        return settle(
            gate,
            decision,
            check_input=shell.check,
            suggest=lambda name, value: suggested_rules(subject(name, shell.tools[name], value)),
        ).remember_tools

    edit = {"command": "git fetch origin"}
    assert settled(remember=True) == ("Bash(npm run:*)",)
    assert settled(remember=True, input=edit) == ("Bash(git fetch:*)",)
    assert settled(remember=True, input={"command": "ls | wc"}) == ()
    with pytest.raises(InvalidFieldError):
        settled(rules=gate.suggested_rules, input=edit)


ANN = Approval(any_of=("user:ann", "user:cid"), quorum=2)
OWN = {"approvers": Approval(any_of=("user:ben",)).fields}


async def test_the_gate_of_an_ask_rule_has_its_approvers(bench: Bench, log: list[str]) -> None:
    """Before the run's, in every mode; calls that another rule or none asks for have the run's."""
    await store_rule(bench, "send", "ask")
    await store_rule(bench, "send(what=pay*)", "ask", approval=ANN)
    await store_rule(bench, "outside", "ask", approval=ANN)
    uses = [("a", "send", {"what": "payment"}), ("b", "send", {"what": "x"})]
    run_id = await bench.create(
        [calls(*uses, ("c", "outside", {"what": "x"}))], mode="autonomous", limits=OWN
    )
    await bench.drive()
    found = {gate.tool_use_id: gate.approval for gate in await bench.gates(run_id)}
    assert found == {"a": ANN, "b": Approval.read(OWN["approvers"]), "c": ANN}
    other = await bench.create([calls(("d", "send", {"what": "x"}))])
    await bench.drive()
    assert [gate.approval for gate in await bench.gates(other)] == [None]
    assert log == []


async def test_a_call_that_is_asked_again_has_the_approvers_of_its_rule(
    bench: Bench, log: list[str]
) -> None:
    """A rule that came between the verdict and the start, and an outcome that nobody knows."""
    await store_rule(bench, "send", "allow")
    run_id = await bench.create([calls(("a", "send", {"what": "x"}))], limits=OWN)
    (held,) = await bench.take()
    start_call = bench.store.steps.start_call

    async def late_ask(*args: Any, **options: Any) -> None:
        bench.store.steps.start_call = start_call  # type: ignore[method-assign]
        await store_rule(bench, "send", "ask", approval=ANN)
        await start_call(*args, **options)

    bench.store.steps.start_call = late_ask  # type: ignore[method-assign]
    await Driver(bench.engine, held).drive()
    (gate,) = await bench.gates(run_id)
    assert (gate.kind, gate.approval, log) == ("tool_approval", ANN, [])
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="allow"))

    async def dies(*args: Any, **options: Any) -> None:
        await start_call(*args, **options)
        raise LeaseLostError("gone")

    bench.store.steps.start_call = dies  # type: ignore[method-assign]
    (held,) = await bench.take()
    with pytest.raises(LeaseLostError):
        await Driver(bench.engine, held).drive()
    bench.store.steps.start_call = start_call  # type: ignore[method-assign]
    await bench.expire(run_id)
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    assert (gate.kind, gate.approval, log) == ("outcome_unknown", ANN, [])


async def test_a_rule_that_comes_while_a_call_is_asked_again_names_the_approvers(
    bench: Bench,
) -> None:
    """The gate is opened by the rules that hold at that moment, not by a copy of them."""
    await store_rule(bench, "send", "allow")
    run_id = await bench.create([calls(("a", "send", {"what": "x"}))])
    (held,) = await bench.take()
    start_call, ask_again = bench.store.steps.start_call, bench.store.steps.ask_again

    async def late_ask(*args: Any, **options: Any) -> None:
        bench.store.steps.start_call = start_call  # type: ignore[method-assign]
        await store_rule(bench, "send", "ask")
        await start_call(*args, **options)

    async def late_approvers(*args: Any, **options: Any) -> None:
        bench.store.steps.ask_again = ask_again  # type: ignore[method-assign]
        await store_rule(bench, "*", "ask", approval=ANN)
        await ask_again(*args, **options)

    bench.store.steps.start_call = late_ask  # type: ignore[method-assign]
    bench.store.steps.ask_again = late_approvers  # type: ignore[method-assign]
    await Driver(bench.engine, held).drive()
    assert [gate.approval for gate in await bench.gates(run_id)] == [ANN]
