"""What nodes pass to interrupt(): plain JSON that asks for what its function says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signoff.domain.question import check_questions
from signoff.interrupts import KEY, approve, ask, external, plan


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (approve("send", {"to": "a"}), "tool"),
        (external("book", {"room": "b"}), "external"),
        (ask("Which?", ["red", "blue"]), "question"),
        (plan("first this"), "plan"),
    ],
)
def test_each_is_plain_json_with_its_kind(value: dict[str, Any], kind: str) -> None:
    """So a checkpoint can hold it, and whoever reads it need not guess."""
    assert json.loads(json.dumps(value)) == value
    assert value[KEY] == kind


def test_a_question_has_the_shape_that_people_are_asked_in() -> None:
    """With a header that fits, and one answer or several."""
    (question,) = check_questions({"questions": ask("Which?", ["a", "b"], multi=True)["questions"]})
    assert (question.text, question.labels, question.multi) == ("Which?", ("a", "b"), True)


def test_the_input_is_a_copy() -> None:
    """A node may go on with its own."""
    given = {"to": "a"}
    value = approve("send", given, insist=True)
    given["to"] = "b"
    assert (value["input"], value["insist"]) == ({"to": "a"}, True)
