"""What a Python function accepts from a model: its JSON schema and the strict reading of input."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, Protocol, Required, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, core_schema

# On Python 3.11 pydantic refuses the one of typing.
from typing_extensions import TypedDict

from signoff.domain.error import InvalidToolInputError, SignoffError
from signoff.domain.path import Path, dotted
from signoff.domain.wording import worded

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_NO_DEFAULT = inspect.Parameter.empty
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


class ToolDefinitionError(SignoffError):
    """A function or its declaration cannot be offered as a tool."""

    code = "invalid_tool"


class Inputs(Protocol):
    """What a tool accepts, wherever that is declared: as models see it and as input is checked."""

    schema: dict[str, Any]

    @property
    def first(self) -> str | None:
        """The parameter that stands first, if the order of parameters means anything."""
        ...

    def check(self, tool_input: object) -> dict[str, Any]:
        """The arguments for ``tool_input``; raises InvalidToolInputError that names the field."""
        ...


class Parameters:
    """The parameters of one function, as a model sees them and as input is checked.

    They are a typed dict rather than a model: any name works as a parameter, and what the input
    omits stays out, so that the function's own defaults apply.
    """

    __slots__ = ("_adapter", "hints", "schema")

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """Read the signature of ``function``; raises ToolDefinitionError that names ``name``."""
        self.hints = _hints(function, name)
        signature = inspect.signature(function).parameters
        fields = {
            key: Required[hint] if signature[key].default is _NO_DEFAULT else NotRequired[hint]
            for key, hint in self.hints.items()
        }
        shape = cast("Any", TypedDict)(name, fields)
        shape.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
        try:
            self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)
            self.schema = _schema(self._adapter, signature)
        except PydanticUserError as error:
            msg = f"tool {name}: a parameter's type has no JSON schema: {error.message}"
            raise ToolDefinitionError(msg) from error

    @property
    def first(self) -> str | None:
        """The function's first parameter."""
        return next(iter(self.hints), None)

    def check(self, tool_input: object) -> dict[str, Any]:
        """The function's arguments for ``tool_input``; raises InvalidToolInputError otherwise.

        Nothing is coerced beyond what JSON cannot say itself: ``1`` is a float, a string is a date
        where the parameter is one. Unknown fields are refused at every level.
        """
        if not isinstance(tool_input, Mapping):
            msg = "the input must be an object"
            raise InvalidToolInputError(msg)
        try:
            # Read as JSON, since only that mode is strict and yet takes an array for a tuple.
            raw = json.dumps(tool_input, allow_nan=False)
            return self._adapter.validate_json(raw, strict=True, extra="forbid")
        except ValidationError as error:
            raise _invalid(error, tool_input) from None
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"the input is not JSON: {error}"
            raise InvalidToolInputError(msg) from error


def result_schema(function: Callable[..., Any], name: str) -> dict[str, Any] | None:
    """The JSON schema of what ``function`` says that it returns.

    None for no annotation, and for None: a function that is only declared has a body that returns
    nothing, so that says nothing about results.
    """
    hint = get_type_hints(function, include_extras=True).get("return", Any)
    if hint in (Any, type(None)):
        return None
    try:
        schema = TypeAdapter(hint).json_schema(schema_generator=_Schema)
    except PydanticUserError as error:
        msg = f"tool {name}: the type of its result has no JSON schema: {error.message}"
        raise ToolDefinitionError(msg) from error
    schema.pop("title", None)
    return schema


class _Schema(GenerateJsonSchema):
    """JSON schema without generated titles: they repeat the names and cost tokens."""

    def field_title_should_be_set(
        self, schema: CoreSchema | core_schema.ModelField | core_schema.DataclassField | Any
    ) -> bool:
        """Never."""
        del schema
        return False


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        msg = f"tool {name}: the type {error.name!r} is not known where the function is declared"
        raise ToolDefinitionError(msg) from error
    found: dict[str, Any] = {}
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED_KINDS:
            msg = f"tool {name}: the parameter {key!r} cannot be passed by name"
            raise ToolDefinitionError(msg)
        if key not in hints:
            msg = f"tool {name}: the parameter {key!r} has no type"
            raise ToolDefinitionError(msg)
        found[key] = hints[key]
    return found


def _schema(
    adapter: TypeAdapter[dict[str, Any]], signature: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    schema = adapter.json_schema(schema_generator=_Schema)
    schema.pop("title", None)
    _close(schema)
    for key, parameter in signature.items():
        default = parameter.default
        if isinstance(default, (str, int, float, bool)) or default is None:
            schema["properties"][key].setdefault("default", default)
    return schema


def _close(node: object) -> None:
    """Say in the schema what check() does anyway: no unknown fields, on any level."""
    if isinstance(node, dict):
        if node.get("type") == "object" and isinstance(node.get("properties"), dict):
            node["additionalProperties"] = False
        for child in node.values():
            _close(child)
    elif isinstance(node, list):
        for child in node:
            _close(child)


def _invalid(error: ValidationError, tool_input: Mapping[str, Any]) -> InvalidToolInputError:
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "json_invalid":
        return InvalidToolInputError("the input is not JSON: it holds a lone surrogate")
    field = dotted(_path(first["loc"], tool_input, missing=kind in _MISSING))
    if kind in _MISSING:
        message = "is required"
    elif kind in _UNKNOWN:
        message = "is not a parameter of this tool"
    else:
        message = worded(kind, first["msg"], first.get("ctx", {}))
    return InvalidToolInputError(f"{field}: {message}" if field else message, field=field)


def _path(loc: Sequence[str | int], value: Any, *, missing: bool) -> Path:
    """The path of ``loc`` within the input; pydantic's labels of union members are left out."""
    parts: list[str | int] = []
    for index, part in enumerate(loc):
        try:
            value = value[part]
        except (LookupError, TypeError):
            if not (missing and index == len(loc) - 1):
                continue
        parts.append(part)
    return tuple(parts)
