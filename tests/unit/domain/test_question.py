"""Questions have one shape, and answers to them one normal form."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import InvalidFieldError, InvalidToolInputError
from signoff.domain.question import (
    Question,
    answers_for_clients,
    answers_for_model,
    ask_user_questions,
    check_plan,
    check_questions,
    normalise_answers,
    normalise_plan_answer,
    plan_questions,
    read_ask_user,
    selections_for_model,
)


def asked(text: str = "Which?", *, multi: bool = False) -> dict[str, Any]:
    return {
        "question": text,
        "header": "Pick",
        "multiSelect": multi,
        "options": [
            {"label": "A", "description": "first"},
            {"label": "B"},
            {"label": "C", "preview": "c()"},
        ],
    }


def test_a_well_formed_input_is_read() -> None:
    """multiSelect defaults to false; descriptions are optional; a long header is advice only."""
    plain = asked("Two?")
    del plain["multiSelect"]
    plain["header"] = "much longer than twelve characters"
    first, second = check_questions({"questions": [asked(multi=True), plain]})
    assert first == Question(text="Which?", header="Pick", multi=True, labels=("A", "B", "C"))
    assert second.multi is False


Change = Callable[[dict[str, Any]], Any]


def put(**fields: Any) -> Change:
    return lambda tool_input: tool_input["questions"][0].update(fields)


def put_option(**fields: Any) -> Change:
    return lambda tool_input: tool_input["questions"][0]["options"][1].update(fields)


def drop(name: str) -> Change:
    return lambda tool_input: tool_input["questions"][0].pop(name)


MALFORMED: list[tuple[str, Change]] = [
    ("questions", lambda i: i.pop("questions")),
    ("questions", lambda i: i.update(questions=[])),
    ("questions", lambda i: i.update(questions={"0": asked()})),
    ("questions", lambda i: i.update(questions=[asked(str(n)) for n in range(5)])),
    ("questions", lambda i: i.update(questions=[asked("same"), asked("same")])),
    ("extra", lambda i: i.update(extra=1)),
    ("questions[0]", lambda i: i.update(questions=["Which?"])),
    ("questions[1]", lambda i: i["questions"].append(None)),
    ("questions[0].extra", put(extra=1)),
    ("questions[0].question", drop("question")),
    ("questions[0].question", put(question=" ")),
    ("questions[0].question", put(question=5)),
    ("questions[0].header", drop("header")),
    ("questions[0].header", put(header="")),
    ("questions[0].header", put(header=None)),
    ("questions[0].multiSelect", put(multiSelect="yes")),
    ("questions[0].multiSelect", put(multiSelect=None)),
    ("questions[0].options", drop("options")),
    ("questions[0].options", put(options=[{"label": "A"}])),
    ("questions[0].options", put(options=[{"label": x} for x in "ABCDE"])),
    ("questions[0].options", put(options="AB")),
    ("questions[0].options", put(options=[{"label": "A"}, {"label": "A"}])),
    ("questions[0].options[0]", put(options=["A", "B"])),
    ("questions[0].options[1].label", put_option(label="")),
    ("questions[0].options[1].label", put_option(label=True)),
    ("questions[0].options[1].extra", put_option(extra=1)),
    ("questions[0].options[1].description", put_option(description=None)),
    ("questions[0].options[1].preview", put_option(preview=7)),
]


@pytest.mark.parametrize(
    ("field", "change"), MALFORMED, ids=[f"{n}-{row[0]}" for n, row in enumerate(MALFORMED)]
)
def test_each_malformed_shape_names_its_field(field: str, change: Change) -> None:
    """The error is for the model: which field, and what is wrong with it."""
    tool_input = {"questions": [asked()]}
    change(tool_input)
    with pytest.raises(InvalidToolInputError) as caught:
        check_questions(tool_input)
    assert caught.value.field == field
    assert caught.value.message.startswith(field)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["question", "header", "options", "label", "multiSelect"]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_the_reader_of_questions_is_total(value: Any) -> None:
    """Any JSON is questions or an error that names a field."""
    before = copy.deepcopy(value)
    field: str | None = "questions"
    try:
        assert 1 <= len(check_questions({"questions": value})) <= 4
    except InvalidToolInputError as error:
        field = error.field
    assert field is not None
    assert field.startswith("questions")
    assert value == before


@pytest.mark.parametrize(
    ("tool_input", "field"),
    [({}, "plan"), ({"plan": ""}, "plan"), ({"plan": 5}, "plan"), ({"plan": "p", "x": 1}, "x")],
)
def test_a_plan_is_one_text(tool_input: dict[str, Any], field: str) -> None:
    """Nothing else belongs to it."""
    assert check_plan({"plan": "p"}) == "p"
    with pytest.raises(InvalidToolInputError) as caught:
        check_plan(tool_input)
    assert caught.value.field == field


def test_a_plan_as_question_is_well_formed() -> None:
    """What clients are shown passes the check of questions."""
    (question,) = check_questions({"questions": plan_questions("the plan")})
    assert (question.text, question.header) == ("the plan", "Plan Approval")


def str_id(value: Any) -> str:
    return str(value)[:20]


ONE = Question(text="One?", header="H", multi=False, labels=("A", "B", "C"))
MANY = Question(text="Many?", header="H", multi=True, labels=("A", "B", "C", "D, E"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("A", ["A"]),
        (["A"], ["A"]),
        ("A, B", ["A", "B"]),
        ("B, A", ["A", "B"]),
        (["B", "A"], ["A", "B"]),
        ("D, E", ["D, E"]),
        ("D, E, A", ["A", "D, E"]),
        ("A, D, E, C", ["A", "C", "D, E"]),
        (["D, E", "C"], ["C", "D, E"]),
        ("A, something else", ["A, something else"]),
        ("A,B", ["A,B"]),
        ("free, text", ["free, text"]),
        (["mine", "A"], ["A", "mine"]),
        (["y", "x"], ["x", "y"]),
        ("A, " * 50_000, ["A, " * 50_000]),
    ],
    ids=str_id,
)
def test_several_labels_as_a_list_or_joined_are_the_same_answer(
    value: Any, expected: list[str]
) -> None:
    """The order says nothing; what is no list of labels is free text as a whole."""
    assert normalise_answers((MANY,), {"Many?": value}) == {"Many?": expected}


@pytest.mark.parametrize("value", ["A", "A, B", "anything", "D, E, A", ["A"]])
def test_a_single_answer_is_taken_as_it_is(value: Any) -> None:
    """Free text is always allowed, also with commas."""
    expected = value if isinstance(value, list) else [value]
    assert normalise_answers((ONE,), {"One?": value}) == {"One?": expected}


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"One?": "A"},
        {"One?": "A", "Many?": "B", "Else?": "C"},
        {"One?": "A", "many?": "B"},
        {"One?": "A", "Many?": ""},
        {"One?": " ", "Many?": "A"},
        {"One?": "A", "Many?": []},
        {"One?": "A", "Many?": ["A", ""]},
        {"One?": "A", "Many?": ["A", 1]},
        {"One?": "A", "Many?": None},
        {"One?": 1, "Many?": "A"},
        {"One?": {"A": True}, "Many?": "A"},
        {"One?": ["A", "B"], "Many?": "A"},
        {"One?": "A", "Many?": ["A", "A"]},
        {"One?": "A", "Many?": "B, B"},
    ],
)
def test_answers_that_do_not_fit_name_the_field(answers: dict[str, Any]) -> None:
    """Unknown or missing texts, empty answers, wrong types, two answers to one."""
    with pytest.raises(InvalidFieldError) as caught:
        normalise_answers((ONE, MANY), answers)
    assert caught.value.field == "answers"


@given(st.lists(st.sampled_from(MANY.labels), min_size=1, unique=True), st.data())
def test_the_same_set_has_the_same_form(labels: list[str], data: st.DataObject) -> None:
    """As a list in any order, or joined as the reference clients join."""
    shuffled = data.draw(st.permutations(labels))
    listed = normalise_answers((MANY,), {"Many?": labels})
    assert normalise_answers((MANY,), {"Many?": list(shuffled)}) == listed
    assert normalise_answers((MANY,), {"Many?": ", ".join(shuffled)}) == listed


def test_the_model_sees_the_questions_with_their_answers() -> None:
    """One answer as a text, several as a list; clients see them joined."""
    answers = normalise_answers((ONE, MANY), {"Many?": "B, A", "One?": "own words"})
    assert json.loads(answers_for_model((ONE, MANY), answers)) == {
        "answers": [
            {"question": "One?", "header": "H", "answer": "own words"},
            {"question": "Many?", "header": "H", "answer": ["A", "B"]},
        ]
    }
    assert answers_for_clients(answers) == {"One?": "own words", "Many?": "A, B"}


@pytest.mark.parametrize("key", ["Plan Approval", "the plan"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Approve", "Approve"),
        (" Approve\n", "Approve"),
        (["Approve"], "Approve"),
        ("Revise", "Revise"),
        ("approve, but faster", "approve, but faster"),
    ],
)
def test_a_plan_is_answered_by_its_header_or_its_text(key: str, value: Any, expected: str) -> None:
    """Only the exact word approves."""
    assert normalise_plan_answer("the plan", {key: value}) == expected


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"other": "Approve"},
        {"Plan Approval": "Approve", "the plan": "Approve"},
        {"Plan Approval": ""},
        {"Plan Approval": ["Approve", "Revise"]},
        {"Plan Approval": True},
    ],
)
def test_a_plan_takes_one_answer(answers: dict[str, Any]) -> None:
    """Other keys, two keys, empty or several answers are refused."""
    with pytest.raises(InvalidFieldError) as caught:
        normalise_plan_answer("the plan", answers)
    assert caught.value.field == "answers"


def ask_user(**change: Any) -> dict[str, Any]:
    options = [{"label": "A", "preview": "a()"}, {"label": "B", "description": "b"}]
    item = {"question": "Which?", "header": "Pick", "options": options}
    return {"questions": [{**item, **change}]}


def test_an_ask_user_input_has_our_form_and_keeps_what_people_are_shown() -> None:
    """multi_select becomes multiSelect; context and previews stay."""
    (plain,) = ask_user_questions(ask_user())
    assert (plain["multiSelect"], "multi_select" in plain) == (False, False)
    (asked_for,) = ask_user_questions(ask_user(multi_select=True, context="because"))
    assert (asked_for["multiSelect"], asked_for["context"]) == (True, "because")
    assert asked_for["options"][0]["preview"] == "a()"
    (read,) = read_ask_user(ask_user(multi_select=True, context="because"))
    assert (read.text, read.multi, read.labels) == ("Which?", True, ("A", "B"))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"questions": None},
        {"questions": []},
        {"questions": ["Which?"]},
        ask_user(multi_select="yes"),
        ask_user(multiSelect=True),
        ask_user(context=1),
        ask_user(options=[{"label": "A"}]),
        ask_user(extra=1),
        {**ask_user(), "more": 1},
    ],
)
def test_another_input_is_no_ask_user_input(wrong: dict[str, Any]) -> None:
    """It is refused by an error of ours, so that the call stays what it is: an external one."""
    with pytest.raises(InvalidToolInputError):
        ask_user_questions(wrong)


@given(st.dictionaries(st.sampled_from(["questions", "x"]), st.recursive(st.text(), st.lists)))
def test_reading_an_ask_user_input_is_total(value: dict[str, Any]) -> None:
    """Whatever a model sends."""
    with contextlib.suppress(InvalidToolInputError):
        ask_user_questions(value)


def test_selections_tell_labels_from_free_text() -> None:
    """As the tool of that name answers."""
    questions = read_ask_user(ask_user(multi_select=True))
    answers = normalise_answers(questions, {"Which?": ["free", "B", "A"]})
    assert json.loads(selections_for_model(questions, answers)) == {
        "answers": [{"question": "Which?", "selected": ["A", "B"], "other": "free"}]
    }
    plain = normalise_answers(questions, {"Which?": "A, B"})
    assert json.loads(selections_for_model(questions, plain))["answers"][0] == {
        "question": "Which?",
        "selected": ["A", "B"],
    }
