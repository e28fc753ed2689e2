"""What may happen next to the calls of one step."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.call import Call, CallState, Effect, next_moves
from signoff.domain.error import IllegalMoveError

ALLOWED = {
    ("asked", "allowed"),
    ("asked", "done"),
    ("allowed", "started"),
    ("allowed", "asked"),
    ("allowed", "done"),
    ("started", "started"),
    ("started", "asked"),
    ("started", "done"),
}


@pytest.mark.parametrize(
    ("source", "target"), [*itertools.product(CallState, CallState)], ids=lambda s: s.value
)
def test_every_pair_is_either_a_move_or_refused(source: CallState, target: CallState) -> None:
    """The full product of call states."""
    if (source.value, target.value) in ALLOWED:
        assert source.to(target) is target
        return
    with pytest.raises(IllegalMoveError):
        source.to(target)


def call(n: int, state: str, effect: str = "once", seq: int | None = None) -> Call:
    return Call(
        n=n,
        id=f"c{n}",
        tool="t",
        input_json="{}",
        digest="d",
        state=CallState(state),
        effect=Effect(effect),
        seq=seq,
    )


def test_the_edited_input_runs() -> None:
    """Without an edit it is the model's own."""
    asked = call(0, "allowed")
    assert asked.effective_json == "{}"
    assert replace(asked, run_input_json='{"a":1}').effective_json == '{"a":1}'


def test_effects_run_one_at_a_time_in_the_order_they_were_decided() -> None:
    """The decision's number counts, not the place in the model's list."""
    calls = [
        call(0, "allowed", "once", seq=3),
        call(1, "allowed", "idempotent", seq=1),
        call(2, "allowed", "once", seq=2),
        call(3, "allowed", "read", seq=4),
    ]
    order: list[int] = []
    while True:
        moves = next_moves(calls, running=frozenset())
        if moves.finished:
            break
        for item in moves.start:
            order.append(item.n)
            calls[item.n] = replace(item, state=CallState.DONE)
    assert order == [3, 1, 2, 0]


def test_a_lost_call_is_handled_by_its_effect() -> None:
    """Started and not running here: repeat what may be repeated, ask about the rest."""
    calls = [
        call(0, "started", "once"),
        call(1, "started", "idempotent"),
        call(2, "started", "read"),
        call(3, "allowed", "once", seq=1),
    ]
    moves = next_moves(calls, running=frozenset())
    assert [c.n for c in moves.unknown] == [0]
    # The interrupted effect goes first: it was decided before anything that has not started.
    assert sorted(c.n for c in moves.start) == [1, 2]


@pytest.mark.parametrize("one", list(Effect))
@pytest.mark.parametrize("other", list(Effect))
def test_of_two_promises_the_weaker_counts(one: Effect, other: Effect) -> None:
    """Free only if both are, and repeated only if both may be."""
    found = one.or_worse(other)
    assert found in (one, other)
    assert (found is Effect.READ) == (one is other is Effect.READ)
    assert found.repeatable == (one.repeatable and other.repeatable)


def test_a_parked_step_has_nothing_to_do() -> None:
    """Open gates are not finished, and nothing starts."""
    moves = next_moves([call(0, "asked"), call(1, "done")], running=frozenset())
    assert (moves.start, moves.unknown, moves.finished) == ((), (), False)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Call], frozenset[int]]:
    """Calls as a step may hold them, with those that run in this process."""
    calls = [
        call(
            n,
            draw(st.sampled_from([s.value for s in CallState])),
            draw(st.sampled_from([e.value for e in Effect])),
            draw(st.none() | st.integers(0, 9)),
        )
        for n in range(draw(st.integers(0, 6)))
    ]
    live = [c.n for c in calls if c.state in (CallState.STARTED, CallState.ALLOWED)]
    running: list[int] = []
    for n in live:
        effects = [m for m in running if calls[m].effect is not Effect.READ]
        if (calls[n].effect is Effect.READ or not effects) and draw(st.booleans()):
            running.append(n)
    return calls, frozenset(running)


@given(steps())
def test_moves_never_break_the_rules_of_a_step(step: tuple[list[Call], frozenset[int]]) -> None:
    """Effects never two at a time, reads at once, nothing twice, nothing unasked."""
    calls, running = step
    moves = next_moves(calls, running=running)
    assert moves.finished == all(c.state is CallState.DONE for c in calls)
    started = [c.n for c in moves.start]
    assert len(started) == len(set(started))
    assert running.isdisjoint(started)
    effects = [n for n in {*running, *started} if calls[n].effect is not Effect.READ]
    assert len(effects) <= 1
    for item in moves.start:
        assert item.state is CallState.ALLOWED or (
            item.state is CallState.STARTED and item.effect.repeatable
        )
    lost = {c.n for c in calls if c.state is CallState.STARTED} - running
    if not moves.finished:
        assert {c.n for c in moves.unknown} == {n for n in lost if not calls[n].effect.repeatable}
        reads = {
            c.n
            for c in calls
            if c.effect is Effect.READ
            and c.n not in running
            and c.state in (CallState.ALLOWED, CallState.STARTED)
        }
        assert reads <= set(started)


@given(steps())
def test_a_step_without_open_gates_always_has_a_move(
    step: tuple[list[Call], frozenset[int]],
) -> None:
    """Nothing waits for ever: something starts, is unknown, runs, or the step is over."""
    calls = [c for c in step[0] if c.state is not CallState.ASKED]
    calls = [replace(c, n=n) for n, c in enumerate(calls)]
    moves = next_moves(calls, running=frozenset())
    assert moves.finished or moves.start or moves.unknown
