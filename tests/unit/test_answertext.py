"""Words that are JSON, alone or in one fence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.answertext import value_of


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 3}',
        ' \n{"n": 3}\n',
        '```json\n{"n": 3}\n```',
        '```\n{"n": 3}\n```\n',
        '\n```JSON \r\n{\r\n"n": 3}\r\n```',
        '``` json\n{"n": 3}```',
    ],
)
def test_json_is_its_value(text: str) -> None:
    """With or without one fence around all of it."""
    assert value_of(text) == {"n": 3}


@pytest.mark.parametrize(
    "text",
    [
        "three",
        'Here: ```json\n{"n": 3}\n```',
        '```json\n{"n": 3}\n```\nas you asked',
        '```json\n{"n": 3}\n```\n```json\n{"n": 4}\n```',
        '````json\n{"n": 3}\n````',
        '```python\n{"n": 3}\n```',
        '```json{"n": 3}```',
        "```json\n```",
        "``````",
        '{"n": 3, "n": 4}',
        "\ud800",
    ],
)
def test_other_words_are_themselves(text: str) -> None:
    """Nothing is picked out of them."""
    assert value_of(text) == text


@given(st.text(st.characters(codec=None)))
def test_any_text_has_a_value(text: str) -> None:
    """Never an error, fenced neither."""
    value_of(text)
    value_of(f"```json\n{text}\n```")


KEYS = st.text("ab`\n{ ", max_size=3)


@given(st.dictionaries(KEYS, KEYS | st.integers(-9, 9)))
def test_a_fence_changes_nothing(value: dict[str, object]) -> None:
    """Of what is JSON, whatever stands in its strings."""
    text = json.dumps(value, indent=1)
    assert value_of(f"```json\n{text}\n```") == value_of(text)
