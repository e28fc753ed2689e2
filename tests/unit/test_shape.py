import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import InvalidFieldError
from signoff.shape import MAX_DEPTH, MAX_NODES, MAX_PATTERNS, Misfit, shape_of

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["name"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
WORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "$ref", "$defs", "required", "pattern", "const", "a"]
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["object", "#", "#/$defs/a", "^a+$", "(", True, 1, None, []]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def misfit(schema: Any, value: Any, *, closed: bool = False) -> Misfit | None:
    return shape_of(schema, field="schema", closed=closed).misfit(value)


def refused(schema: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidFieldError) as caught:
        shape_of(schema, field="output_schema")
    return caught.value.field, caught.value.message


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"name": "x", "age": 3, "tags": ["a"], "more": 1}, None),
        ({"age": 3}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x", "age": "3"}, "age"),
        ({"name": "x", "age": True}, "age"),
        ({"name": "x", "tags": ["a", "z"]}, "tags[1]"),
    ],
)
def test_the_first_misfit_is_named_by_its_place(value, field):
    """Nothing is coerced, and whoever sent the value learns where it is wrong."""
    found = misfit(PERSON, value)
    assert (found.field if found else None) == field


def test_the_message_does_not_repeat_the_value():
    """It goes into answers, and a value may be long or private."""
    found = misfit(PERSON, {"name": "x", "age": "secret" * 1000})
    assert str(found) == 'age: the value is not of type "integer"'
    assert str(misfit(PERSON, {})) == "name: is required"


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "nope"}, "output_schema.type"),
        ({"properties": {"a": {"minLength": -1}}}, "output_schema.properties.a.minLength"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "output_schema.properties.a.pattern"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "output_schema.properties.a.pattern"),
        ({"pattern": "a{1,1000}{1,1000}"}, "output_schema.pattern"),
        ({"$ref": "https://example.com/schema"}, "output_schema.$ref"),
        ({"$ref": "#/$defs/none"}, "output_schema.$ref"),
        ({"$dynamicRef": "#x"}, "output_schema.$dynamicRef"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "output_schema.$schema"),
        ({"const": 2**60}, "output_schema.const"),
        ({"const": "\0"}, "output_schema"),
        ([], "output_schema"),
        ("object", "output_schema"),
    ],
)
def test_what_is_no_usable_schema_is_refused_by_its_place(schema, field):
    """At create, where somebody can still do something about it."""
    assert refused(schema)[0] == field


def test_local_references_are_followed_and_never_in_circles():
    """Schemas that libraries generate name their parts."""
    schema = {
        "$defs": {"line": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "type": "object",
        "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
    }
    assert misfit(schema, {"lines": [{"n": 1}, {"n": 2}]}) is None
    assert str(misfit(schema, {"lines": [{"n": 1}, {"n": "2"}]})).startswith("lines[1].n: ")
    tree = {"$defs": {"t": {"properties": {"t": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}
    assert "back to itself" in refused(tree)[1]


def test_a_property_may_be_called_like_a_keyword():
    """Only where a schema stands is ``$ref`` a reference."""
    schema = {"properties": {"$ref": {"type": "integer"}, "$id": {"type": "integer"}}}
    assert misfit(schema, {"$ref": 1, "$id": 1}) is None
    assert str(misfit(schema, {"$ref": "x"})).startswith("$ref: ")
    assert misfit({"const": {"$ref": "nowhere"}}, {"$ref": "nowhere"}) is None


def test_a_closed_shape_knows_its_fields_on_every_level():
    """Where several schemas describe one value together, none of them is closed alone."""
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = {
        "properties": {
            "one": inner,
            "many": {"type": "array", "items": inner},
            "maybe": {"anyOf": [inner, {"type": "null"}]},
            "both": {"allOf": [inner, {"properties": {"c": True}}]},
            "open": {**inner, "additionalProperties": True},
            "free": {"type": "object"},
        }
    }
    for good in (
        {"one": {"b": 1}, "many": [{"b": 1}], "maybe": None, "free": {"x": 1}},
        {"both": {"b": 1, "c": 2}, "open": {"x": 1}, "maybe": {"b": 1}},
    ):
        assert misfit(schema, good, closed=True) is None
    for bad, field in (
        ({"zero": 1}, "zero"),
        ({"one": {"x": 1}}, "one.x"),
        ({"many": [{"b": 1}, {"x": 1}]}, "many[1].x"),
        ({"maybe": {"x": 1}}, "maybe"),
    ):
        found = misfit(schema, bad, closed=True)
        assert found is not None
        assert found.field == field
        assert misfit(schema, bad) is None


def test_a_schema_is_bounded_in_size_depth_and_patterns():
    """Also one that is small until its references are followed."""
    deep: Any = {}
    for _ in range(MAX_DEPTH + 1):
        deep = {"items": {"items": deep}}
    wide: Any = {"properties": {str(n): {} for n in range(MAX_NODES)}}
    doubling: Any = {
        "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)}
        | {"60": {}},
        "$ref": "#/$defs/0",
    }
    many: Any = {"properties": {str(n): {"pattern": "a"} for n in range(MAX_PATTERNS + 1)}}
    for schema in (deep, wide, doubling, many, {"const": "x" * 70_000}):
        field, _ = refused(schema)
        assert (field or "").startswith("output_schema")


def test_a_hostile_pattern_costs_nothing():
    """One that backtracks elsewhere."""
    started = time.process_time()
    assert misfit({"pattern": "^(a+)+$"}, "a" * 100_000 + "!") is not None
    assert time.process_time() - started < 1


def _within(inner: Any, how: str) -> Any:
    beside = "unevaluatedItems" if how == "contains" else "unevaluatedProperties"
    wraps: dict[str, Any] = {
        "anyOf": {"anyOf": [inner]},
        "allOf": {"allOf": [{"properties": {"a": inner}}]},
        "oneOf": {"oneOf": [inner, False]},
        "if": {"if": inner, "then": {}},
        "contains": {"contains": inner},
    }
    return {**wraps[how], beside: False}


@pytest.mark.parametrize("how", ["anyOf", "allOf", "oneOf", "if", "contains"])
def test_levels_that_are_each_looked_at_again_are_refused(how):
    """Each level would double the work: twenty of them are a minute for one small value."""
    nested: Any = {"properties": {"a": {}}}
    for _ in range(14):
        nested = _within(nested, how)
    assert "in place" in refused(nested)[1]
    few: Any = {"properties": {"a": {}}}
    for _ in range(5):
        few = _within(few, how)
    shape_of(few, field="schema")


def test_closed_levels_may_be_nested_deeply():
    """Fields within fields are looked at once."""
    nested: Any = {"properties": {"a": {"type": "integer"}}}
    value: Any = {"a": 1}
    for _ in range(12):
        nested, value = {"properties": {"a": nested}}, {"a": value}
    assert shape_of(nested, field="schema", closed=True).misfit(value) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"allOf": [{"minimum": -n} for n in range(1_900)]}},
        {"items": {"enum": [*[f"x{n}" for n in range(7_000)], 0]}},
        {"items": {"dependentRequired": {f"a{n}": [f"a{n}"] for n in range(1_900)}}},
    ],
)
def test_much_to_check_in_much_is_a_misfit_at_once(schema):
    """A long list against many schemas each would keep everybody else waiting for seconds."""
    started = time.process_time()
    found = misfit(schema, [0] * 150_000)
    assert found is not None
    assert "too large" in found.message
    assert time.process_time() - started < 1
    assert misfit(schema, [0] * 500) is None


def test_a_value_beyond_the_checkers_depth_is_a_misfit():
    """Whatever the checker gives up on does not fit."""
    value: Any = 1
    for _ in range(500):
        value = {"a": value}
    assert misfit({"type": "object", "const": {}}, value) is not None


@given(SCHEMAS | JSON, JSON)
def test_reading_and_checking_are_total(schema, value):
    """Any schema is a shape or a named refusal; any value fits or is a misfit."""
    try:
        shape = shape_of(schema, field="schema")
    except InvalidFieldError as error:
        assert (error.field or "").startswith("schema")  # noqa: PT017 - the other outcome is fine
        return
    found = shape.misfit(value)
    assert found is None or (found.message and len(found.message) <= 300)


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_a_value_of_none_of_the_forms_is_told_without_the_library_s_words(word):
    """The message is about the value, not about keywords."""
    schema = {"type": "object", "properties": {"a": {word: [{"type": "string"}, {"minimum": 9}]}}}
    found = misfit(schema, {"a": 1})
    assert found is not None
    assert (found.field, "none of the forms" in found.message) == ("a", True)
