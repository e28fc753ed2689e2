"""Builds the OpenAPI document from the routes, and from what their handlers say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from service.dispatch import Served
from service.errors import STATUS
from service.operation import (
    IDS,
    JSON,
    RETRY_HEADER,
    TEXT,
    Answer,
    Operation,
    Parameter,
    operation_of,
)
from signoff.wire.problem import ProblemBody

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_REF = "#/components/schemas/{model}"
#: Placeholders of paths that are no integer ids.
_TEXTS = frozenset({"user_id", "name", "token"})
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "`Bearer`"},
    429: RETRY_HEADER,
    503: RETRY_HEADER,
}
_ABOUT = """\
Durable agent runs that stop and ask. The same handlers are served under `/v1` and under `/api/v2`;
webhook endpoints made under the second sign in the `hex` form unless they say otherwise.

A trailing slash makes no difference. Every other path is 404 `not_found`, every other method 405
`method_not_allowed`. Fields that a body here does not name are ignored, except in decisions.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """Routes and where they are mounted."""

    prefix: str
    tag: str
    routes: Sequence[Served]


def build(mounts: Iterable[Mounted], *, version: str) -> dict[str, Any]:
    """The document of these routes; raises UndescribedError for one that says nothing of itself."""
    found = [
        (mount, route, method.lower(), operation_of(handler), handler)
        for mount in mounts
        for route in mount.routes
        for method, handler in route.handlers.items()
    ]
    schemas = _Schemas(described for _, _, _, described, _ in found)
    paths: dict[str, dict[str, Any]] = {}
    for mount, route, method, described, handler in found:
        path = mount.prefix + route.path
        paths.setdefault(path, {})[method] = {
            "operationId": "_".join([method, *re.findall(r"\w+", path)]).replace("-", "_"),
            "tags": [mount.tag],
            **_words(handler.__doc__ or ""),
            **_operation(described, schemas, names=_PLACEHOLDER.findall(path), keyed=route.keyed),
        }
    _link(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Signoff", "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _link(paths: Mapping[str, Mapping[str, Any]]) -> None:
    """Says of each operation that makes something which ones take its id."""
    for path, methods in paths.items():
        made = methods.get("post", {}).get("responses", {}).get("201")
        below = next(
            (
                found
                for one in paths
                if (found := re.fullmatch(re.escape(path) + r"/\{(\w+)\}", one))
            ),
            None,
        )
        if made is None or below is None:
            continue
        name = below[1]
        source = "$response.body#/user_id" if name == "user_id" else "$response.body#/id"
        made["links"] = {
            one["operationId"]: {
                "operationId": one["operationId"],
                "parameters": {f"path.{name}": source},
            }
            for other, found in paths.items()
            if other.startswith(below[0])
            for one in found.values()
        }


class _Schemas:
    """The schemas of all bodies, each class once."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        wanted: dict[str, tuple[JsonSchemaMode, Any]] = {}
        for described in operations:
            if described.body is not None:
                wanted[_key("validation", described.body)] = ("validation", described.body)
            for answer in described.answers:
                if answer.model is not None:
                    model = answer.model
                    wanted[_key("serialization", model)] = ("serialization", model)
        wanted[_key("serialization", ProblemBody)] = ("serialization", ProblemBody)
        schemas, shared = TypeAdapter.json_schemas(
            [(key, mode, TypeAdapter(model)) for key, (mode, model) in wanted.items()],
            ref_template=_REF,
        )
        self._schemas = {key: schema for (key, _), schema in schemas.items()}
        self.components: dict[str, Any] = shared["$defs"]

    def request(self, model: Any) -> dict[str, Any]:
        """The schema of a body that is read."""
        return self._schemas[_key("validation", model)]

    def answer(self, model: Any) -> dict[str, Any]:
        """The schema of a body that is sent."""
        return self._schemas[_key("serialization", model)]


def _key(mode: str, model: Any) -> str:
    return f"{mode}:{model!r}"


def _words(text: str) -> dict[str, str]:
    summary, _, rest = text.partition("\n")
    more = " ".join(line.strip() for line in rest.splitlines()).strip()
    return {"summary": summary, "description": more} if more else {"summary": summary}


def _operation(
    described: Operation, schemas: _Schemas, *, names: list[str], keyed: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if keyed:
        found["security"] = [{"key": []}]
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": dict(TEXT if name in _TEXTS else IDS),
        }
        for name in names
    ]
    parameters += [_parameter(one) for one in described.parameters]
    if parameters:
        found["parameters"] = parameters
    if described.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {described.media: {"schema": schemas.request(described.body)}},
        }
    elif described.media != JSON:
        content = {described.media: {"schema": {"type": "object"}}}
        found["requestBody"] = {"required": False, "content": content}
    found["responses"] = _responses(described, schemas, _codes(described, names, keyed=keyed))
    return found


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "in": one.place,
        "required": one.required,
        "description": one.about,
        "schema": dict(one.schema),
    }


def _codes(described: Operation, names: list[str], *, keyed: bool) -> list[str]:
    """Every code that the operation may refuse with."""
    codes = {"internal_error", *described.refuses}
    if described.stored:
        codes.add("unavailable")
    if keyed:
        codes.add("unauthorized")
    if names:
        codes.add("not_found")
    if described.parameters:
        codes.add("validation_error")
    if described.body is not None:
        codes |= {"malformed_body", "body_too_large", "unsupported_media_type", "validation_error"}
    return sorted(codes)


def _responses(described: Operation, schemas: _Schemas, codes: list[str]) -> dict[str, Any]:
    responses: dict[int, dict[str, Any]] = {}
    for answer in described.answers:
        _add(responses, answer, schemas)
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(STATUS[code], []).append(code)
    for status, found in by_status.items():
        if status in responses:
            # It says itself what this status means.
            continue
        schema = {
            "allOf": [
                schemas.answer(ProblemBody),
                {"properties": {"error": {"properties": {"error_code": {"enum": found}}}}},
            ]
        }
        responses[status] = {
            "description": ", ".join(f"`{code}`" for code in found),
            **_headers(_HEADERS.get(status, {})),
            "content": {JSON: {"schema": schema}},
        }
    return {str(status): responses[status] for status in sorted(responses)}


def _add(responses: dict[int, dict[str, Any]], answer: Answer, schemas: _Schemas) -> None:
    """Adds an answer; two of one status differ in their media type."""
    entry: dict[str, Any] = {"description": answer.about, **_headers(answer.headers)}
    if answer.media is not None:
        content = {} if answer.model is None else {"schema": schemas.answer(answer.model)}
        entry["content"] = {answer.media: content}
    before = responses.get(answer.status)
    if before is not None:
        entry = {
            "description": f"{before['description']} {entry['description']}",
            "headers": {**before.get("headers", {}), **entry.get("headers", {})},
            "content": {**before.get("content", {}), **entry.get("content", {})},
        }
    responses[answer.status] = entry


def _headers(named: Mapping[str, str]) -> dict[str, Any]:
    headers = {
        name: {"description": about, "schema": {"type": "string"}} for name, about in named.items()
    }
    return {"headers": headers} if headers else {}
