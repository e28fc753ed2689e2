"""Answer events of strangers: each is read into decisions or refused, whatever it holds."""

import dataclasses
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from service.agentscope import confirmed, executed
from service.body import check
from signoff.domain.decision import Decision
from signoff.domain.error import GateRefusedError, InvalidFieldError
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.mode import Mode
from signoff.domain.run import RunStatus
from signoff.store.records import RunRecord
from signoff.wire.agentscope import ExternalExecutionResult, UserConfirmResult

RUN = RunRecord(
    id=7,
    account="1",
    agent_id=1,
    user_id=None,
    status=RunStatus.AWAITING_APPROVAL,
    mode=Mode.APPROVAL,
    mode_v="1",
    human_in_the_loop=True,
    plan_approved=False,
    turn=1,
    step=1,
    turn_steps=1,
    fence="1",
    wake="1",
    rev="1",
    pause_n=1,
    open=1,
    phase="calls",
    takeovers=0,
    config={},
    output=None,
    output_data=None,
    error=None,
    error_code=None,
    usage={},
    created_ms=1,
    updated_ms=1,
    turn_started_ms=1,
)
INPUTS: dict[GateKind, dict[str, Any]] = {
    GateKind.QUESTION: {
        "questions": [{"question": "?", "header": "h", "options": [{"label": "A"}]}]
    },
    GateKind.PLAN: {"plan": "?"},
}
GATES = [
    Gate(
        id=f"req_{n}",
        run_id=7,
        kind=kind,
        state=GateState.PENDING,
        pause=1,
        tool="t",
        tool_use_id=kind.value,
        tool_input=INPUTS.get(kind, {"a": 1}),
        digest="0" * 64,
        suggested_rules=(),
        created_ms=2,
    )
    for n, kind in enumerate(GateKind)
]
SETTLED = [dataclasses.replace(gate, state=GateState.ALLOWED) for gate in GATES]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
IDS = st.sampled_from([*(kind.value for kind in GateKind), "x"])
NAMES = st.sampled_from(["t", "AskUser", "x"])
REQUESTS = st.none() | st.sampled_from([gate.id for gate in GATES])


def shaped(**fields):
    """An object of these fields, now and then with some of them missing or anything."""
    loose = st.fixed_dictionaries({}, optional={k: v | JSON for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | loose


CONFIRMS = shaped(
    confirmed=st.booleans(),
    tool_call=shaped(
        type=st.just("tool_call"),
        id=IDS,
        name=NAMES,
        input=st.sampled_from(["{}", '{"a":1}', '{"a":1e400}', "[" * 99, "\x00", "\ud800", "x"]),
    ),
    rules=st.lists(
        shaped(tool_name=NAMES, rule_content=st.none(), behavior=NAMES, source=NAMES), max_size=2
    ),
    reason=st.text(max_size=3),
    request_id=REQUESTS,
)
RESULTS = shaped(
    id=IDS,
    name=NAMES,
    output=st.text(max_size=3),
    state=st.sampled_from(["success", "error", "running"]),
    metadata=shaped(
        answers=st.lists(
            shaped(
                question=st.sampled_from(["?", "Plan Approval", "x"]),
                selected=st.lists(st.sampled_from(["A", "Approve", "Revise", "x"]), max_size=2),
                other=st.text(max_size=3),
            ),
            max_size=2,
        )
    ),
    request_id=REQUESTS,
)


def event(kind, items, **fields):
    return shaped(type=st.just(kind), reply_id=st.just("run_7_1"), **{items: fields["of"]})


def read(model, decide, value, gates):
    """The decisions, or None for a refusal."""
    try:
        found = decide(RUN, gates, check(model, value))
    except (InvalidFieldError, GateRefusedError):
        return None
    assert all(isinstance(item, Decision) for item in found)
    return found


@given(
    event("USER_CONFIRM_RESULT", "confirm_results", of=st.lists(CONFIRMS, max_size=2)),
    st.sampled_from([GATES, SETTLED, []]),
)
@example(
    {
        "type": "USER_CONFIRM_RESULT",
        "reply_id": "run_7_1",
        "confirm_results": [
            {
                "confirmed": True,
                "tool_call": {"id": "tool_approval", "name": "t", "input": "{}"},
            }
        ],
    },
    GATES,
)
def test_any_verdicts_are_decisions_or_refused(value, gates):
    """Total; and no verdict is on a gate that takes none."""
    for decision in read(UserConfirmResult, confirmed, value, gates) or ():
        assert decision.verdict in ("allow", "deny")
        assert decision.request_id in {"req_0", "req_4"}


@given(
    event("EXTERNAL_EXECUTION_RESULT", "execution_results", of=st.lists(RESULTS, max_size=2)),
    st.sampled_from([GATES, SETTLED, []]),
)
def test_any_results_are_decisions_or_refused(value, gates):
    """Total; and no result is for a call that asks."""
    for decision in read(ExternalExecutionResult, executed, value, gates) or ():
        assert decision.verdict is None
        assert (decision.answers is None) != (decision.result is None)
        assert decision.request_id != "req_0"
