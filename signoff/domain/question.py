"""Questions to a person: their shape, the plan as a question, and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.domain.error import InvalidFieldError, InvalidToolInputError
from signoff.domain.jsontext import compact

#: An external tool of this name that asks questions in this shape asks a person, if there is one.
ASK_USER_TOOL = "AskUser"
PLAN_HEADER = "Plan Approval"
APPROVE, REVISE = "Approve", "Revise"
MAX_QUESTIONS, MAX_OPTIONS, MIN_OPTIONS = 4, 4, 2
_QUESTION_FIELDS = {"question", "header", "multiSelect", "options"}
_OPTION_FIELDS = {"label", "description", "preview"}

ASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["questions"],
    "properties": {
        "questions": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_QUESTIONS,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["question", "header", "options"],
                "properties": {
                    "question": {"type": "string"},
                    "header": {"type": "string", "description": "at most 12 characters"},
                    "multiSelect": {"type": "boolean"},
                    "options": {
                        "type": "array",
                        "minItems": MIN_OPTIONS,
                        "maxItems": MAX_OPTIONS,
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["label"],
                            "properties": {
                                "label": {"type": "string"},
                                "description": {"type": "string"},
                                "preview": {"type": "string"},
                            },
                        },
                    },
                },
            },
        }
    },
}
PLAN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["plan"],
    "properties": {"plan": {"type": "string"}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question; ``labels`` are its options' labels in order."""

    text: str
    header: str
    multi: bool
    labels: tuple[str, ...]


def check_questions(tool_input: Mapping[str, Any]) -> tuple[Question, ...]:
    """The questions of an AskUserQuestion input; raises InvalidToolInputError naming the field."""
    _only(tool_input, {"questions"}, "")
    items = tool_input.get("questions")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_QUESTIONS:
        raise _bad("questions", f"must be a list of 1 to {MAX_QUESTIONS} questions")
    questions = tuple(_question(item, f"questions[{n}]") for n, item in enumerate(items))
    if len({q.text for q in questions}) != len(questions):
        raise _bad("questions", "question texts must be unique")
    return questions


def ask_user_questions(tool_input: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions of an AskUser input as those of an AskUserQuestion input.

    Raises InvalidToolInputError when it does not ask in that shape. ``context`` stays with its
    question, for whoever shows it.
    """
    _only(tool_input, {"questions"}, "")
    items = tool_input.get("questions")
    if not isinstance(items, list):
        raise _bad("questions", "must be a list of questions")
    asked = [_asked(item, f"questions[{n}]") for n, item in enumerate(items)]
    check_questions({"questions": [_without_context(item) for item in asked]})
    return asked


def read_ask_user(tool_input: Mapping[str, Any]) -> tuple[Question, ...]:
    """The questions of an AskUser input."""
    asked = ask_user_questions(tool_input)
    return check_questions({"questions": [_without_context(item) for item in asked]})


def check_plan(tool_input: Mapping[str, Any]) -> str:
    """The plan of an ExitPlanMode input."""
    _only(tool_input, {"plan"}, "")
    return _text(tool_input, "plan", "plan")


def plan_questions(plan: str) -> list[dict[str, Any]]:
    """A plan as the one question that clients show."""
    return [
        {
            "question": plan,
            "header": PLAN_HEADER,
            "multiSelect": False,
            "options": [
                {"label": APPROVE, "description": "Carry the plan out"},
                {"label": REVISE, "description": "Send it back with feedback"},
            ],
        }
    ]


def normalise_answers(
    questions: tuple[Question, ...], answers: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Answers by question text, each as a list of labels or free texts.

    Raises InvalidFieldError for unknown or missing question texts and empty answers.
    """
    if not answers:
        raise InvalidFieldError("answers must not be empty", field="answers")
    known = {question.text: question for question in questions}
    for text in answers:
        if text not in known:
            msg = f"no question has this text: {text[:80]!r}"
            raise InvalidFieldError(msg, field="answers")
    for text in known:
        if text not in answers:
            msg = f"the question is not answered: {text[:80]!r}"
            raise InvalidFieldError(msg, field="answers")
    return {text: _answer(known[text], value) for text, value in answers.items()}


def normalise_plan_answer(plan: str, answers: Mapping[str, Any]) -> str:
    """The one answer to a plan, keyed by the header or by the plan's text."""
    if len(answers) != 1 or next(iter(answers)) not in (PLAN_HEADER, plan):
        msg = f"answer the plan by the key {PLAN_HEADER!r} or by its text"
        raise InvalidFieldError(msg, field="answers")
    question = Question(text=plan, header=PLAN_HEADER, multi=False, labels=(APPROVE, REVISE))
    return _answer(question, next(iter(answers.values())))[0].strip()


def answers_for_model(
    questions: tuple[Question, ...], answers: Mapping[str, list[str]], *, note: str | None = None
) -> str:
    """The questions with their answers, as the model sees them, and a ``note`` on them."""
    rows = [
        {"question": q.text, "header": q.header, "answer": _shown(answers[q.text])}
        for q in questions
    ]
    return compact({"answers": rows} if note is None else {"answers": rows, "note": note})


def selections_for_model(
    questions: tuple[Question, ...], answers: Mapping[str, list[str]], *, note: str | None = None
) -> str:
    """The answers to an AskUser call, as its model expects them: labels apart from free text."""
    rows: list[dict[str, Any]] = []
    for q in questions:
        row: dict[str, Any] = {"question": q.text}
        row["selected"] = [value for value in answers[q.text] if value in q.labels]
        if free := [value for value in answers[q.text] if value not in q.labels]:
            row["other"] = ", ".join(free)
        rows.append(row)
    return compact({"answers": rows} if note is None else {"answers": rows, "note": note})


def answers_for_clients(answers: Mapping[str, list[str]]) -> dict[str, str]:
    """Answers by question text, several labels joined as the reference clients do."""
    return {text: ", ".join(values) for text, values in answers.items()}


def _shown(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _answer(question: Question, value: Any) -> list[str]:
    if isinstance(value, str):
        values = _split(question, value)
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        values = list(value)
    else:
        raise InvalidFieldError("an answer is a text or a list of texts", field="answers")
    if any(not item.strip() for item in values):
        raise InvalidFieldError("an answer must not be empty", field="answers")
    if len(values) > 1 and not question.multi:
        msg = f"the question takes one answer: {question.text[:80]!r}"
        raise InvalidFieldError(msg, field="answers")
    if len(set(values)) != len(values):
        raise InvalidFieldError("an answer names one label twice", field="answers")
    # The order of labels carries no meaning, so that the same set is the same answer.
    order = {label: n for n, label in enumerate(question.labels)}
    return sorted(values, key=lambda item: (order.get(item, len(order)), item))


def _split(question: Question, value: str) -> list[str]:
    if question.multi and value not in question.labels:
        return _joined(value, question.labels, len(question.labels)) or [value]
    return [value]


def _joined(value: str, labels: tuple[str, ...], most: int) -> list[str]:
    """The labels that ``value`` joins, each of which may have commas; none if it is no such list.

    ``most`` bounds the search: nobody joins more labels than there are.
    """
    if value in labels:
        return [value]
    for label in labels if most > 1 else ():
        rest = value.removeprefix(f"{label}, ")
        if rest != value and (found := _joined(rest, labels, most - 1)):
            return [label, *found]
    return []


def _asked(item: Any, at: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _bad(at, "must be an object")
    if "multiSelect" in item:
        raise _bad(f"{at}.multiSelect", "unknown field")
    if not isinstance(item.get("context", ""), str):
        raise _bad(f"{at}.context", "must be a text")
    found = {key: value for key, value in item.items() if key != "multi_select"}
    return {**found, "multiSelect": item.get("multi_select", False)}


def _without_context(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if key != "context"}


def _question(item: Any, at: str) -> Question:
    if not isinstance(item, dict):
        raise _bad(at, "must be an object")
    _only(item, _QUESTION_FIELDS, at)
    multi = item.get("multiSelect", False)
    if not isinstance(multi, bool):
        raise _bad(f"{at}.multiSelect", "must be true or false")
    options = item.get("options")
    if not isinstance(options, list) or not MIN_OPTIONS <= len(options) <= MAX_OPTIONS:
        raise _bad(f"{at}.options", f"must be a list of {MIN_OPTIONS} to {MAX_OPTIONS} options")
    labels = tuple(_label(option, f"{at}.options[{n}]") for n, option in enumerate(options))
    if len(set(labels)) != len(labels):
        raise _bad(f"{at}.options", "labels must be unique")
    return Question(
        text=_text(item, "question", f"{at}.question"),
        header=_text(item, "header", f"{at}.header"),
        multi=multi,
        labels=labels,
    )


def _label(option: Any, at: str) -> str:
    if not isinstance(option, dict):
        raise _bad(at, "must be an object")
    _only(option, _OPTION_FIELDS, at)
    for name in ("description", "preview"):
        if name in option and not isinstance(option[name], str):
            raise _bad(f"{at}.{name}", "must be a text")
    return _text(option, "label", f"{at}.label")


def _text(item: Mapping[str, Any], name: str, at: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _bad(at, "must be a text that is not empty")
    return value


def _only(item: Mapping[str, Any], known: set[str], at: str) -> None:
    for name in item:
        if name not in known:
            raise _bad(f"{at}.{name}" if at else name, "unknown field")


def _bad(field: str, message: str) -> InvalidToolInputError:
    return InvalidToolInputError(f"{field}: {message}", field=field)
