"""Holds what the service answers, and what it reads, against the document that it serves."""

import copy
import re

import jsonschema_rs

from service import context
from service.api.table import all_routes, development_routes
from service.openapi import build
from service.operation import operation_of
from service.query import Query

MOUNTS = all_routes(development=True)
DOCUMENT = build(MOUNTS, version="test")
ONLY_IN_DEVELOPMENT = {route.path for route in development_routes()}
_REFUSALS = {404: "not_found", 405: "method_not_allowed"}


def _pattern(path):
    return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))


def _closed(node):
    """The schema with every named body closed: a field that it does not name is a failure."""
    if isinstance(node, list):
        return [_closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    found = {key: _closed(one) for key, one in node.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


COMPONENTS = _closed(copy.deepcopy(DOCUMENT["components"]))
HANDLERS = {
    (mount.prefix + route.path, method.lower()): handler
    for mount in MOUNTS
    for route in mount.routes
    for method, handler in route.handlers.items()
}
BY_PATTERN = {_pattern(path): path for path in DOCUMENT["paths"]}
_VALIDATORS: dict[str, jsonschema_rs.Validator] = {}


def _plain(path):
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


def documented(path, method):
    """The documented path and method that serve this request; None for what is not there."""
    path, method = _plain(path), "get" if method == "HEAD" else method.lower()
    for pattern, known in BY_PATTERN.items():
        if pattern.fullmatch(path):
            return known, method if method in DOCUMENT["paths"][known] else None
    return None, None


def _validator(schema):
    key = repr(schema)
    if key not in _VALIDATORS:
        whole = {**schema, "components": COMPONENTS}
        _VALIDATORS[key] = jsonschema_rs.validator_for(whole)
    return _VALIDATORS[key]


async def check_response(response):
    """Fails unless the document says that this request may be answered so."""
    request = response.request
    path, method = documented(request.url.path, request.method)
    said = f"{request.method} {request.url.path} -> {response.status_code}"
    if response.status_code == 404 and path in ONLY_IN_DEVELOPMENT:
        return
    if method is None:
        wanted = _REFUSALS[404 if path is None else 405]
        if request.method == "HEAD":
            return
        await response.aread()
        assert response.json()["error"]["error_code"] in {wanted, "unavailable"}, said
        return
    answers = DOCUMENT["paths"][path][method]["responses"]
    assert str(response.status_code) in answers, f"{said}: not a documented status"
    content = answers[str(response.status_code)].get("content", {})
    media = response.headers.get("content-type", "").partition(";")[0]
    if request.method == "HEAD" or (not content and not media):
        return
    assert media in content, f"{said}: {media} is not documented"
    if media != "application/json":
        return
    await response.aread()
    schema = content[media]["schema"]
    errors = [
        f"{list(error.instance_path)}: {error.message}"
        for error in _validator(schema).iter_errors(response.json())
    ]
    assert not errors, f"{said}: {errors[:3]}"


class Reading:
    """Notes whatever a handler reads that its description does not name."""

    def __init__(self, monkeypatch):
        self.problems = []
        reading = self

        class Recorded(Query):
            def __init__(self, scope):
                super().__init__(scope)
                self.scope = scope

            def text(self, name):
                reading.parameter(self.scope, name, minLength=1, maxLength=255)
                return super().text(name)

            def integer(self, name, *, low=1, high=10**15 - 1):
                reading.parameter(self.scope, name, minimum=low, maximum=high)
                return super().integer(name, low=low, high=high)

            def flag(self, name):
                reading.parameter(self.scope, name, type="boolean")
                return super().flag(name)

            def choice(self, name, options):
                reading.parameter(self.scope, name, enum=sorted(options))
                return super().choice(name, options)

        read = context.Call.body_with_raw

        async def body_with_raw(call, model):
            reading.body(call.scope, model)
            return await read(call, model)

        monkeypatch.setattr(context, "Query", Recorded)
        monkeypatch.setattr(context.Call, "body_with_raw", body_with_raw)

    def _described(self, scope):
        path, method = documented(scope["path"], scope["method"])
        return f"{scope['method']} {path}", operation_of(HANDLERS[(path, method)])

    def parameter(self, scope, name, **schema):
        """A query parameter is read with these bounds."""
        where, described = self._described(scope)
        found = [
            dict(one.schema)
            for one in described.parameters
            if one.place == "query" and one.name == name
        ]
        if len(found) != 1 or not schema.items() <= found[0].items():
            self.problems.append(f"{where} reads {name} {schema}, described: {found}")

    def body(self, scope, model):
        """A body is read as this model."""
        where, described = self._described(scope)
        if described.body is not model:
            self.problems.append(f"{where} reads {model}, described: {described.body}")
