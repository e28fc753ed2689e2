"""Tools that are declared by a JSON schema instead of a Python function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from signoff.domain.error import InvalidFieldError, InvalidToolInputError
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL
from signoff.domain.jsontext import compact
from signoff.domain.output import OUTPUT_TOOL
from signoff.mcpserver import MCP_PREFIX
from signoff.shape import shape_of
from signoff.tooldef import NAME, Tool

__all__ = ["RESERVED", "SchemaInputs", "check_external_tools", "external_tools"]

#: The engine answers these itself; a tool of that name would never run.
RESERVED = frozenset({ASK_TOOL, PLAN_TOOL, OUTPUT_TOOL})
MAX_EXTERNAL_TOOLS = 64
#: All declarations of one list together, as JSON: the run's record carries them.
MAX_EXTERNAL_BYTES = 128 * 1024


class SchemaInputs:
    """The input that a JSON schema describes; the schema is read when input is first checked.

    Nothing is coerced, and unknown fields are refused on each level whose fields the schema lists
    and that does not say otherwise.
    """

    __slots__ = ("schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Input must fit ``schema``."""
        self.schema = dict(schema)

    @property
    def first(self) -> str | None:
        """None: the order of a schema's properties means nothing."""
        return None

    def check(self, tool_input: object) -> dict[str, Any]:
        """``tool_input`` as it is; raises InvalidToolInputError whose ``field`` is dotted."""
        if not isinstance(tool_input, Mapping):
            raise InvalidToolInputError("the input must be an object")
        try:
            shape = shape_of(self.schema, field="input_schema", closed=True)
        except InvalidFieldError as error:
            msg = f"the tool's schema cannot be used: {error.message}"
            raise InvalidToolInputError(msg) from error
        wrong = shape.misfit(dict(tool_input))
        if wrong is not None:
            raise InvalidToolInputError(str(wrong), field=wrong.field)
        return dict(tool_input)


def external_tools(declared: Iterable[Mapping[str, Any]] | None) -> dict[str, Tool]:
    """The tools of declarations that ``check_external_tools`` has passed, by name."""
    return {item["name"]: _external(item) for item in declared or ()}


def check_external_tools(
    declared: Sequence[Mapping[str, Any]], *, loaded: Mapping[str, Tool]
) -> None:
    """Raises InvalidFieldError for the first declaration that cannot be offered to a model.

    A name that Signoff, a loaded tool or an MCP server has is refused with ``reserved_tool``:
    whoever reads a rule or a gate must not mistake one for the other.
    """
    if len(declared) > MAX_EXTERNAL_TOOLS:
        msg = f"external_tools: at most {MAX_EXTERNAL_TOOLS} tools can be declared"
        raise InvalidFieldError(msg, field="external_tools")
    try:
        size = len(compact(list(declared)).encode())
    except (ValueError, RecursionError) as error:
        msg = "external_tools: the declarations are not JSON"
        raise InvalidFieldError(msg, field="external_tools") from error
    if size > MAX_EXTERNAL_BYTES:
        msg = f"external_tools: the declarations are longer than {MAX_EXTERNAL_BYTES} bytes"
        raise InvalidFieldError(msg, field="external_tools")
    seen: set[str] = set()
    for n, item in enumerate(declared):
        at = f"external_tools[{n}]"
        _check_name(item["name"], at, seen=seen, loaded=loaded)
        shape_of(item["input_schema"], field=f"{at}.input_schema", closed=True)
        if item["input_schema"].get("type") != "object":
            msg = f"{at}.input_schema.type: an input is always an object"
            raise InvalidFieldError(msg, field=f"{at}.input_schema.type")
        if item.get("output_schema") is not None:
            shape_of(item["output_schema"], field=f"{at}.output_schema")


def _check_name(name: str, at: str, *, seen: set[str], loaded: Mapping[str, Tool]) -> None:
    field = f"{at}.name"
    if not NAME.fullmatch(name):
        msg = f"{field}: a name has 1 to 64 letters, digits, underscores and hyphens"
        raise InvalidFieldError(msg, field=field)
    if name in RESERVED or name.startswith(MCP_PREFIX) or name in loaded:
        msg = f"{field}: the name {name} is another tool's"
        raise InvalidFieldError(msg, code="reserved_tool", field=field)
    if name in seen:
        raise InvalidFieldError(f"{field}: the name {name} is given twice", field=field)
    seen.add(name)


def _external(item: Mapping[str, Any]) -> Tool:
    return Tool(
        name=item["name"],
        description=item.get("description") or "",
        function=_never,
        parameters=SchemaInputs(item["input_schema"]),
        read_only=False,
        idempotent=False,
        timeout=None,
        external=True,
        patterns=None,
        output_schema=item.get("output_schema"),
        loaded=False,
    )


def _never(**_: Any) -> None:
    raise AssertionError  # an external tool is refused before its function is called
