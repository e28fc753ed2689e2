"""Tools that are declared by a JSON schema: what may be declared, and the check of their input."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.declared import (
    MAX_EXTERNAL_BYTES,
    SchemaInputs,
    check_external_tools,
    external_tools,
)
from signoff.domain.error import InvalidFieldError, InvalidToolInputError
from signoff.tooldef import tool

BOOK: dict[str, Any] = {
    "name": "book",
    "description": "Book a room.",
    "input_schema": {
        "type": "object",
        "properties": {
            "room": {"type": "string"},
            "nights": {"type": "integer", "minimum": 1},
            "guest": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        "required": ["room"],
    },
    "output_schema": {"type": "object", "required": ["code"]},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def refused(*declared, loaded=None):
    with pytest.raises(InvalidFieldError) as caught:
        check_external_tools(declared, loaded=loaded or {})
    return caught.value.field, caught.value.code


def test_a_declaration_becomes_an_external_tool():
    """With its schemas, and nothing that would let it run here or unasked."""
    check_external_tools([BOOK], loaded={})
    (made,) = external_tools([BOOK]).values()
    assert (made.name, made.description, made.external) == ("book", "Book a room.", True)
    assert (made.read_only, made.idempotent, made.loaded) == (False, False, False)
    assert made.input_schema == BOOK["input_schema"]
    assert made.output_schema == BOOK["output_schema"]
    assert made.check({"room": "12", "nights": 2}) == {"room": "12", "nights": 2}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"room": 12}, "room"),
        ({}, "room"),
        ({"room": "12", "nights": "2"}, "nights"),
        ({"room": "12", "nights": 0}, "nights"),
        ({"room": "12", "extra": 1}, "extra"),
        ({"room": "12", "guest": {"name": "A", "age": 3}}, "guest.age"),
    ],
)
def test_input_is_checked_without_coercion_and_the_field_is_named(wrong, field):
    """Unknown fields are wrong on every level that lists its fields."""
    with pytest.raises(InvalidToolInputError) as caught:
        SchemaInputs(BOOK["input_schema"]).check(wrong)
    assert caught.value.field == field


def test_fields_that_the_schema_allows_are_taken():
    """Explicitly, or by listing no fields at all."""
    open_schema = {**BOOK["input_schema"], "additionalProperties": True}
    assert SchemaInputs(open_schema).check({"room": "1", "extra": 1})["extra"] == 1
    assert SchemaInputs({"type": "object"}).check({"any": 1}) == {"any": 1}


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"name": "a b"}, "external_tools[0].name", "validation_error"),
        ({"name": "book\n"}, "external_tools[0].name", "validation_error"),
        ({"name": ""}, "external_tools[0].name", "validation_error"),
        ({"name": "x" * 65}, "external_tools[0].name", "validation_error"),
        ({"name": "AskUserQuestion"}, "external_tools[0].name", "reserved_tool"),
        ({"name": "ExitPlanMode"}, "external_tools[0].name", "reserved_tool"),
        ({"name": "mcp__a__b"}, "external_tools[0].name", "reserved_tool"),
        ({"name": "held"}, "external_tools[0].name", "reserved_tool"),
        ({"input_schema": {}}, "external_tools[0].input_schema.type", "validation_error"),
        (
            {"input_schema": {"type": "objekt"}},
            "external_tools[0].input_schema.type",
            "validation_error",
        ),
        (
            {"input_schema": {"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}},
            "external_tools[0].input_schema.properties.a.$ref",
            "validation_error",
        ),
        (
            {"output_schema": {"type": 7}},
            "external_tools[0].output_schema.type",
            "validation_error",
        ),
    ],
)
def test_what_cannot_be_offered_is_refused_with_its_place(change, field, code):
    """Names that are another's, and schemas that are none."""

    @tool
    def held(what: str) -> str:
        return what

    assert refused({**BOOK, **change}, loaded={"held": held}) == (field, code)


def test_a_list_is_bounded_and_names_each_tool_once():
    """By count and by bytes."""
    assert refused(BOOK, BOOK) == ("external_tools[1].name", "validation_error")
    many = [{**BOOK, "name": f"t{n}"} for n in range(65)]
    assert refused(*many) == ("external_tools", "validation_error")
    long = {**BOOK, "description": "x" * MAX_EXTERNAL_BYTES}
    assert refused(long) == ("external_tools", "validation_error")


@given(JSON)
def test_the_check_of_any_input_is_total_and_changes_nothing(value):
    """A refusal of our own, or exactly what came."""
    before = copy.deepcopy(value)
    try:
        found = SchemaInputs(BOOK["input_schema"]).check(value)
    except InvalidToolInputError:
        pass
    else:
        assert found == before
        assert isinstance(found["room"], str)
    assert value == before


@given(st.dictionaries(st.sampled_from(["type", "properties", "required", "$ref", "enum"]), JSON))
def test_the_check_of_any_schema_is_total(schema):
    """A stranger's schema is taken or refused, and one that is taken checks."""
    item = {**BOOK, "input_schema": schema, "output_schema": None}
    try:
        check_external_tools([item], loaded={})
    except InvalidFieldError:
        return
    try:
        external_tools([item])["book"].check({"room": 1})
    except InvalidToolInputError:
        return
