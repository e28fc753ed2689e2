"""Reads request bodies: bounded, JSON only, strict, and checked against a model once."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope

from signoff.domain.error import InvalidError, InvalidFieldError, MalformedBodyError
from signoff.domain.path import below, dotted
from signoff.domain.wording import worded
from signoff.strictjson import MAX_BYTES, loads

M = TypeVar("M", bound=BaseModel)
_SHOWN_PATH = 200
_MAX_LENGTH_DIGITS = 12


class BodyTooLargeError(InvalidError):
    """The body is longer than any request here needs."""

    code = "body_too_large"


class MediaTypeError(InvalidError):
    """The body is not plain JSON by its own account."""

    code = "unsupported_media_type"


class DisconnectedError(Exception):
    """The client went away before its body was complete; there is nobody to answer."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The header's value; None when it is absent. Repeated ones are joined by commas."""
    found = [value for key, value in scope["headers"] if key == name]
    return b",".join(found) if found else None


async def read_raw(scope: Scope, receive: Receive) -> bytes:
    """The whole body; raises BodyTooLargeError as soon as it is known to be over 1 MiB."""
    declared = header(scope, b"content-length") or b"0"
    too_long = len(declared) > _MAX_LENGTH_DIGITS
    if declared.isdigit() and (too_long or int(declared) > MAX_BYTES):
        raise _too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BYTES:
            raise _too_large()
        if chunk:
            chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def check_media(scope: Scope) -> None:
    """Raises MediaTypeError unless the body is declared as plain, uncompressed JSON in UTF-8."""
    encoding = header(scope, b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise MediaTypeError("a body must not be compressed", field="content-encoding")
    declared = header(scope, b"content-type")
    kind, _, parameters = (declared or b"").partition(b";")
    if kind.strip().lower() != b"application/json":
        raise MediaTypeError("the body must be sent as application/json", field="content-type")
    name, _, value = parameters.partition(b"=")
    charset = value.strip().strip(b'"').lower()
    if name.strip().lower() == b"charset" and charset not in (b"utf-8", b"utf8"):
        raise MediaTypeError("JSON is UTF-8", field="content-type")


async def read_json(scope: Scope, receive: Receive) -> tuple[bytes, Any]:
    """The raw body and its value."""
    if header(scope, b"content-type") is not None or header(scope, b"content-encoding") is not None:
        check_media(scope)
    raw = await read_raw(scope, receive)
    if not raw:
        raise MalformedBodyError("the body is empty; a JSON object is expected")
    check_media(scope)
    return raw, loads(raw)


def check(model: type[M], value: Any, *, under: str = "") -> M:
    """``value`` as ``model``; raises InvalidFieldError naming the first wrong field.

    ``under`` is the path of ``value`` within the body.
    """
    if not isinstance(value, dict):
        raise InvalidFieldError("the body must be a JSON object", field=under or None)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(error, under) from None


def _invalid(error: ValidationError, under: str) -> InvalidFieldError:
    # Never the input: it may hold what must not be repeated into logs and answers.
    first = error.errors(include_url=False, include_input=False)[0]
    # Without our own names for the members of a union.
    loc = tuple(part for part in first["loc"] if not str(part).startswith("<"))
    path = below(under, dotted(loc)) if under else dotted(loc) or ""
    message = {"missing": "is required", "extra_forbidden": "is not a known field"}.get(
        first["type"], worded(first["type"], first["msg"], first.get("ctx", {}))
    )
    path = path[:_SHOWN_PATH]  # keys are strangers' too
    return InvalidFieldError(f"{path}: {message}" if path else message, field=path or None)


def _too_large() -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is longer than {MAX_BYTES} bytes")
