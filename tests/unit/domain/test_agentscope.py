"""The event format of AgentScope: names, rules, inputs, and a translator that is total."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.agentscope import (
    ask_input,
    permission_rule,
    reply_id,
    shown_input,
    suggested_rule,
    turn_of,
)
from signoff.domain.agentscope_events import Translator
from signoff.domain.frame import frame
from signoff.domain.gate import GateKind

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KINDS = [
    "turn-start",
    "model-start",
    "model-end",
    "text-start",
    "text-delta",
    "text-end",
    "tool-call-start",
    "tool-call-delta",
    "tool-call-end",
    "permission_request",
    "permission_resolved",
    "tool-result-start",
    "tool-result-delta",
    "tool-result-end",
    "done",
    "error",
    "cancelled",
    "unheard-of",
]
FIELDS = {
    "turn": st.integers(1, 3),
    "id": st.sampled_from("ab"),
    "delta": st.sampled_from(["x", '{"questions":[]}', ""]),
    "toolCallId": st.sampled_from("ab"),
    "toolName": st.sampled_from(["t", "AskUserQuestion", "ExitPlanMode"]),
    "tool_use_id": st.sampled_from("ab"),
    "tool_name": st.sampled_from(["t", "AskUserQuestion"]),
    "tool_input": JSON,
    "request_id": st.just("req_1"),
    "kind": st.sampled_from([*GateKind, "x"]),
    "suggested_rules": JSON,
    "result": JSON,
    "state": st.sampled_from(["success", "denied"]),
    "usage": JSON,
    "step": st.integers(1, 3),
    "error": JSON,
    "error_code": st.sampled_from(["model_auth", "max_turns_exceeded"]),
}
FRAMES = st.builds(
    lambda kind, fields: frame(kind, **fields),
    st.sampled_from(KINDS),
    st.fixed_dictionaries({}, optional=FIELDS),
)


def translated(frames):
    """All events of the frames, each frame an entry of its own."""
    translator = Translator(run_id=7, name="agent")
    return [
        event for n, raw in enumerate(frames) for event in translator.feed((1_000 + n, 0), 0, raw)
    ]


@given(st.lists(FRAMES, max_size=30))
def test_any_frames_give_events_that_pair(frames):
    """Total, the same each time; whatever starts ends once, and within its reply."""
    events = translated(frames)
    assert events == translated(frames)
    json.dumps(events)
    assert len({event["id"] for event in events}) == len(events)
    begun: list[tuple[str, str]] = []
    for event in events:
        stem, _, edge = event["type"].rpartition("_")
        key = (stem, str(event.get("block_id") or event.get("tool_call_id") or ""))
        if event["type"] == "EXCEED_MAX_ITERS" or edge not in ("START", "END"):
            continue
        if edge == "START":
            assert stem == "REPLY" or ("REPLY", "") in begun
            begun.append(key)
        else:
            assert key in begun
            begun.remove(key)
            if stem == "REPLY":
                assert begun == []


def test_a_worker_that_lost_the_run_does_not_disturb_its_calls():
    """What comes when the step was committed by another, or the turn is over, is not shown."""
    events = translated(
        [
            frame("turn-start", turn=1),
            frame("model-start", model="m"),
            frame("text-delta", id="a", delta="of one"),
            frame("model-start", model="m", step=1),
            frame("tool-call-start", toolCallId="c", toolName="t"),
            frame("tool-call-delta", toolCallId="c", delta="{}"),
            frame("tool-call-end", toolCallId="c"),
            frame("model-end", step=1, usage={"input_tokens": 1, "output_tokens": 2}),
            frame("model-start", model="m", step=1),
            frame("text-delta", id="a", delta="late"),
            frame("tool-result-end", toolCallId="c", result="r", state="success"),
            frame("cancelled"),
            frame("text-delta", id="a", delta="later"),
        ]
    )
    assert [event["type"] for event in events] == [
        "REPLY_START",
        "MODEL_CALL_START",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "MODEL_CALL_START",
        "TOOL_CALL_START",
        "TOOL_CALL_DELTA",
        "TOOL_CALL_END",
        "MODEL_CALL_END",
        "TOOL_RESULT_START",
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_END",
        "REPLY_END",
    ]
    ends = [event for event in events if event["type"] == "MODEL_CALL_END"]
    assert [end["finished_reason"] for end in ends] == ["interrupted", "completed"]


def test_frames_of_an_older_release_are_understood():
    """Without starts of turns and models: they are added where the first word is."""
    events = translated([frame("text-delta", id="a", delta="x"), frame("done")])
    assert [event["type"] for event in events] == [
        "REPLY_START",
        "MODEL_CALL_START",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "REPLY_END",
    ]


@pytest.mark.parametrize(
    ("tool", "name", "content"),
    [
        ("send_email", "send_email", None),
        ("Bash(git status:*)", "Bash", "git status:*"),
        ("Write(/srv/a(b)/**)", "Write", "/srv/a(b)/**"),
        ("mcp__x__*", "mcp__x__*", None),
        ("Bash()", "Bash", ""),
    ],
)
def test_rules_are_split_and_joined(tool, name, content):
    """A name with a pattern is two fields there, and the same text here."""
    rule = permission_rule({"tool": tool, "effect": "allow"})
    assert (rule["tool_name"], rule["rule_content"]) == (name, content)
    assert suggested_rule(name, content, "allow") == {"tool": tool, "effect": "allow"}


@pytest.mark.parametrize(
    "reply", ["", "run_7", "run_7_0", "run_07_1", "run_8_1", "run_7_1 ", "run_7_9999999999"]
)
def test_only_replies_of_the_run_name_a_turn(reply):
    """Anything else is none."""
    assert turn_of(7, reply) is None
    assert turn_of(7, reply_id(7, 12)) == 12


@given(JSON)
def test_questions_are_shown_or_left(value):
    """Total; a header that those clients refuse is cut."""
    shown = ask_input({"questions": value})
    assert shown is None or isinstance(shown["questions"], list)
    item = {"question": "?", "header": "a long header", "options": [{"label": "A"}]}
    cut = ask_input({"questions": [item]})
    assert cut is not None
    (question,) = cut["questions"]
    assert question["header"] == "a long heade"


def test_the_input_is_shown_as_it_was_written_unless_it_is_another_by_now():
    """An edited input that is asked about again is shown itself."""
    kind = GateKind.TOOL_APPROVAL
    assert shown_input(kind, {"a": 1, "b": 2}, '{"b":2,"a":1}') == '{"b":2,"a":1}'
    assert shown_input(kind, {"a": True}, '{"a":1}') == '{"a":true}'
    assert shown_input(kind, {"a": 1}, "") == '{"a":1}'
