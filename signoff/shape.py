"""JSON schemas from strangers: read once within bounds, then checked against without coercion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NoReturn

import jsonschema_rs as engine

from signoff import strictjson
from signoff.canonical import canonical
from signoff.domain.error import InvalidFieldError, MalformedBodyError, NotCanonicalError
from signoff.domain.jsontext import size_of
from signoff.domain.path import Path, below, dotted
from signoff.domain.wording import NO_CHOICE, SEVERAL_CHOICES

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
#: Schemas within the schema, counted after local references were replaced by what they name.
MAX_NODES = 2_000
#: Compiled patterns are what a schema's memory goes to.
MAX_PATTERNS = 32
#: What checking one value of a schema may come to, as ``_Reader`` estimates it.
MAX_WEIGHT = 100_000
#: Weight of the schema times size of the value: about a quarter of a second at worst.
MAX_WORK = 20_000_000

_PATTERN_BYTES = 64 * 1024
_MESSAGE_CHARS = 300
_COMPILED = 64
#: How often the checker looks at what stands in place beside an ``unevaluated…``, at worst.
_REPEATED = 3

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLES = frozenset(
    {
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
# One instance may have to fit several of these at once, so none of them lists all its fields.
_JOINT = frozenset({"allOf", "dependentSchemas", "else", "if", "not", "then"})
_CHOICES = frozenset({"anyOf", "oneOf"})
_REVISITED = _JOINT | _CHOICES | {"contains"}
_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_NOTES = frozenset({"default", "deprecated", "description", "examples", "readOnly", "title"})
_DROPPED = frozenset({"$anchor", "$comment", "$defs", "$id", "$schema", "definitions"})
_REFUSED = frozenset({"$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"})
_DIALECTS = ("json-schema.org/draft/2020-12/schema", "json-schema.org/draft-07/schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a value does not fit; ``field`` is the dotted path into it, None for the whole."""

    field: str | None
    message: str

    def __str__(self) -> str:
        """``field: message``, as models and callers are told."""
        return f"{self.field}: {self.message}" if self.field else self.message


class Shape:
    """A compiled schema. Checking takes time linear in the value, and bounded for any value.

    Nothing is coerced: ``"1"`` is no number. ``1.0`` is an integer, as JSON Schema says. ``format``
    is a note and never checked. Patterns run on an engine that cannot backtrack.
    """

    __slots__ = ("_validator", "_weight")

    def __init__(self, validator: engine.Validator, weight: int) -> None:
        """Use ``shape_of``."""
        self._validator = validator
        self._weight = weight

    def misfit(self, value: Any) -> Misfit | None:
        """The first thing that is wrong with ``value``, or None; never raises."""
        if size_of(value, MAX_WORK // self._weight) * self._weight > MAX_WORK:
            return Misfit(field=None, message="is too large to be checked against this schema")
        try:
            self._validator.validate(value)
        except engine.ValidationError as error:
            return _misfit(error)
        except (ValueError, TypeError, OverflowError) as error:
            return Misfit(field=None, message=f"cannot be checked: {error}"[:_MESSAGE_CHARS])
        return None


def shape_of(schema: Any, *, field: str, closed: bool = False) -> Shape:
    """The compiled ``schema``; raises InvalidFieldError whose ``field`` starts with ``field``.

    Taken is JSON Schema 2020-12, and draft 7 as far as it means the same. References may name a
    place in the same schema (``#/$defs/item``) and must not lead back to themselves. ``closed``
    makes unknown fields a misfit on each level whose fields the schema lists and that does not
    say otherwise (``additionalProperties``).
    """
    try:
        text = canonical(schema)
        if len(text) > MAX_BYTES:
            _refuse(f"the schema is longer than {MAX_BYTES} bytes", ())
        return _compiled(text, closed)
    except (InvalidFieldError, NotCanonicalError) as error:
        place = below(field, error.field)
        raise InvalidFieldError(f"{place}: {error.message}", field=place) from None


@lru_cache(maxsize=_COMPILED)
def _compiled(text: bytes, closed: bool) -> Shape:
    try:
        schema = strictjson.loads(text, max_depth=2 * MAX_DEPTH)
    except MalformedBodyError as error:
        _refuse(error.message, ())
    if not isinstance(schema, (dict, bool)):
        _refuse("a schema is an object", ())
    reader = _Reader(schema)
    expanded = reader.read(schema, (), closed=closed)
    try:
        validator = engine.Draft202012Validator(
            expanded,
            mask="the value",
            offline=True,
            pattern_options=engine.RegexOptions(
                size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
            ),
            validate_formats=False,
        )
    except engine.ValidationError as error:
        message = error.message
        if "regex" in message:  # the library repeats the pattern and gives no reason
            message = "the pattern is not one that can be matched in linear time, or is too large"
        elif isinstance(error.kind, engine.ValidationErrorKind.AnyOf):
            message = "this is not what JSON Schema takes here"
        _refuse(message, tuple(error.instance_path))
    except ValueError as error:
        _refuse(str(error), ())
    return Shape(validator, reader.weight)


class _Reader:
    """Copies a schema: local references replaced, bounds kept, levels closed where asked."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._nodes = 0
        self._patterns = 0
        #: Comparisons that one value may meet, those counted twice that are made twice.
        self.weight = 1

    def read(
        self,
        node: Any,
        path: Path,
        *,
        closed: bool,
        refs: frozenset[str] = frozenset(),
        times: int = 1,
    ) -> Any:
        """The copy of ``node``, which is checked up to ``times`` times for one value."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            _refuse(f"the schema holds more than {MAX_NODES} schemas", path)
        if len(path) > 2 * MAX_DEPTH:
            _refuse("the schema is nested too deeply", path)
        if not isinstance(node, Mapping):
            return node  # true, false, or something that the meta-schema will refuse
        self._check(node, path)
        if "$ref" in node:
            return self._reference(node, path, closed=closed, refs=refs, times=times)
        found = {key: value for key, value in node.items() if key not in _DROPPED}
        if closed and "properties" in found and "additionalProperties" not in found:
            found.setdefault("unevaluatedProperties", False)
        self._weigh(found, path, times)
        # Which fields are left over is found out by checking again what stands in place.
        again = times * _REPEATED if _UNEVALUATED & found.keys() else times
        for key, value in found.items():
            within = (*path, key)
            read = partial(
                self.read,
                closed=closed and _keeps(key, node),
                refs=refs,
                times=again if key in _REVISITED else times,
            )
            if key in _MAPS and isinstance(value, Mapping):
                found[key] = {name: read(child, (*within, name)) for name, child in value.items()}
            elif key in _LISTS and isinstance(value, list):
                found[key] = [read(child, (*within, n)) for n, child in enumerate(value)]
            elif key in _SINGLES:
                found[key] = read(value, within)
        return found

    def _weigh(self, node: Mapping[str, Any], path: Path, times: int) -> None:
        own = [v for key, v in node.items() if key not in _MAPS | _LISTS | _SINGLES | _NOTES]
        self.weight += times * size_of(own, MAX_WEIGHT)
        if self.weight > MAX_WEIGHT:
            _refuse("the schema takes too long to check: it repeats itself in place", path)

    def _check(self, node: Mapping[str, Any], path: Path) -> None:
        for key in _REFUSED & node.keys():
            _refuse("is not supported", (*path, key))
        dialect = node.get("$schema")
        if dialect is not None and not (
            isinstance(dialect, str)
            and dialect.removeprefix("https://").removeprefix("http://").rstrip("#") in _DIALECTS
        ):
            _refuse("only JSON Schema 2020-12 and draft 7 are supported", (*path, "$schema"))
        patterned = node.get("patternProperties")
        self._patterns += len(patterned) if isinstance(patterned, Mapping) else 0
        self._patterns += "pattern" in node
        if self._patterns > MAX_PATTERNS:
            _refuse(f"the schema holds more than {MAX_PATTERNS} patterns", path)

    def _reference(
        self,
        node: Mapping[str, Any],
        path: Path,
        *,
        closed: bool,
        refs: frozenset[str],
        times: int,
    ) -> Any:
        name = node["$ref"]
        within = (*path, "$ref")
        if not isinstance(name, str) or not (name == "#" or name.startswith("#/")):
            _refuse("a reference must name a place in the same schema", within)
        if name in refs:
            _refuse("the reference leads back to itself", within)
        target = self._root
        for step in name.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or key not in target:
                _refuse("there is nothing at the place that the reference names", within)
            target = target[key]
        beside = {key: value for key, value in node.items() if key not in (*_DROPPED, "$ref")}
        alone = beside.keys() <= _NOTES
        if beside and not alone:
            times *= _REPEATED
        meant = self.read(target, within, closed=closed and alone, refs=refs | {name}, times=times)
        if not beside:
            return meant
        if alone and isinstance(meant, Mapping):
            return {**meant, **beside}
        return {
            "allOf": [meant, self.read(beside, path, closed=False, refs=refs, times=times)],
            **({"unevaluatedProperties": False} if closed and "properties" in beside else {}),
        }


def _keeps(key: str, node: Mapping[str, Any]) -> bool:
    """Whether the schemas under ``key`` are the only ones that describe their value."""
    if key in _JOINT:
        return False
    joint = (_JOINT | _CHOICES | {"properties", "patternProperties"}) & node.keys()
    return key not in _CHOICES or not joint - {key}


def _misfit(error: engine.ValidationError) -> Misfit:
    path = tuple(error.instance_path)
    kind = error.kind
    message = error.message
    if isinstance(kind, engine.ValidationErrorKind.Required):
        path, message = (*path, str(kind.property)), "is required"
    elif (
        isinstance(
            kind,
            (
                engine.ValidationErrorKind.AdditionalProperties,
                engine.ValidationErrorKind.UnevaluatedProperties,
            ),
        )
        and kind.unexpected
    ):
        path, message = (*path, kind.unexpected[0]), "is not a field that the schema knows"
    elif isinstance(
        kind, engine.ValidationErrorKind.AnyOf | engine.ValidationErrorKind.OneOfNotValid
    ):
        message = NO_CHOICE
    elif isinstance(kind, engine.ValidationErrorKind.OneOfMultipleValid):
        message = SEVERAL_CHOICES
    return Misfit(field=dotted(path), message=message[:_MESSAGE_CHARS])


def _refuse(message: str, path: Path) -> NoReturn:
    raise InvalidFieldError(message[:_MESSAGE_CHARS], field=dotted(path))
