"""Calls of the SDK as its users write them: checked by mypy and pyright, never run.

A line with ``type: ignore`` must be refused: mypy reports an ignore that is not needed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_type

import signoff
from signoff import SignatureError, current_call, sign_decision, tool, verify
from signoff.signing import Verified, verify_hex
from signoff.tooldef import CallContext, Tool


def verifying(body: bytes, headers: Mapping[str, str], secrets: Sequence[str]) -> None:
    assert_type(verify(body, headers, "whsec_..."), Verified)
    assert_type(verify(body, headers, secrets), Verified)
    assert_type(verify(body, headers, secrets, now=1.5, tolerance=60), Verified)
    assert_type(verify(body, list(headers.items()), secrets), Verified)
    assert_type(verify_hex(body, headers, secrets), Verified)
    assert_type(verify(body, headers, secrets).msg_id, str)
    assert_type(verify(body, headers, secrets).timestamp, int)
    verify("text", headers, secrets)  # type: ignore[arg-type]
    verify(body, headers)  # type: ignore[call-arg]
    verify(body, headers, secrets, 1.5)  # type: ignore[call-arg]


def asgi_headers(body: bytes, headers: list[tuple[bytes, bytes]], secret: str) -> None:
    assert_type(verify(body, headers, secret), Verified)


def refused(body: bytes, headers: Mapping[str, str], secret: str) -> str:
    try:
        verify(body, headers, secret)
    except SignatureError as error:
        assert_type(error.reason, str)
        assert_type(error.code, str)
        assert_type(error.message, str)
    return ""


def deciding(body: bytes) -> None:
    headers = sign_decision("whsec_...", body, msg_id="dec_1", timestamp=1_700_000_000)
    assert_type(headers, dict[str, str])
    sign_decision("whsec_...", body)  # type: ignore[call-arg]


@tool
def plain(query: str) -> str:
    """Search."""
    return query


@tool(read_only=True, idempotent=True, timeout=5, patterns="path", name="Read")
async def configured(path: str) -> str:
    """Read."""
    return path


def declared() -> None:
    assert_type(plain, Tool)
    assert_type(configured, Tool)
    assert_type(plain.name, str)
    assert_type(plain.input_schema, dict[str, Any])
    assert_type(tool(external=True), Callable[[Callable[..., Any]], Tool])
    tool(patterns="regex")  # type: ignore[call-overload]


def inside_a_tool() -> None:
    assert_type(current_call(), CallContext)
    assert_type(current_call().idempotency_key, str)
    assert_type(current_call().attempt, int)


def surface() -> None:
    assert_type(signoff.__version__, str)
    _ = signoff.nonsense  # type: ignore[attr-defined]
