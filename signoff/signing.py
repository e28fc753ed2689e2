"""Signatures over webhooks and callbacks: make them, check them, and say why one was refused.

Two forms share the signed message ``<id>.<timestamp>.<body>`` and HMAC-SHA256:

standard  Standard Webhooks: ``v1,`` + base64, key = the bytes behind ``whsec_``; several may stand
          in one header, separated by spaces
hex       ``v1=`` + lower-case hex, key = the secret's text as it is; exactly one

Everything here is total: whatever the other side sends, the outcome is a value or one of the two
errors below, never a bare ``TypeError`` or ``UnicodeDecodeError`` that would turn into a 500.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from signoff.domain.error import InvalidError, SignoffError

PREFIX = "whsec_"
ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
TOLERANCE_S = 300

# Standard Webhooks asks for 24 to 64 random bytes.
_MIN_KEY = 24
_MAX_KEY = 64
_NEW_KEY = 32
_MAX_SECRET_TEXT = len(PREFIX) + 4 * ((_MAX_KEY + 2) // 3)
# Rotation needs two or three entries; beyond these bounds the header is an attack on our time.
_MAX_SIGNATURE_TEXT = 4096
_MAX_SIGNATURES = 32
_MAX_HEADERS = 1000
_MAX_CLOCK = 1e15

# No dot: it separates the parts of the signed message, so an id with one could shift the border.
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
# One spelling per number. The text is signed, so a second spelling would be a second message.
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,14}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]

_WHY_SECRET = {
    "missing": "no secret was given",
    "not_text": "the secret is not text",
    "whitespace": "the secret contains whitespace",
    "prefix": "the secret does not start with whsec_",
    "url_safe_alphabet": "the secret uses the URL-safe base64 alphabet; the standard one is needed",
    "alphabet": "the secret contains characters that are not base64",
    "padding": "the secret's base64 is cut short or not padded",
    "not_canonical": "the secret's base64 has stray bits at its end",
    "too_short": f"the secret has fewer than {_MIN_KEY} bytes",
    "too_long": f"the secret has more than {_MAX_KEY} bytes",
}

_WHY_SIGNATURE = {
    "body_not_bytes": "the body must be the raw bytes as they were received",
    "malformed_headers": "the headers are not pairs of names and values",
    "missing_header": "a webhook-* header is missing",
    "duplicate_header": "a webhook-* header was sent more than once",
    "malformed_id": "webhook-id is not 1 to 128 letters, digits, - or _",
    "malformed_timestamp": "webhook-timestamp is not plain decimal seconds",
    "malformed_clock": "now or tolerance is not a usable number",
    "too_old": "the timestamp is too far in the past",
    "too_new": "the timestamp is too far in the future",
    "malformed_secret": "a secret to verify with is malformed",
    "too_many_signatures": "webhook-signature is longer than any honest one",
    "malformed_signature": "webhook-signature holds no well-formed entry of a known scheme",
    "no_match": "no signature matches this body and these secrets",
}


class SecretError(InvalidError):
    """The secret cannot be used as a key; ``reason`` is a stable word and never quotes it."""

    code = "invalid_secret"

    def __init__(self, reason: str) -> None:
        super().__init__(_WHY_SECRET[reason], field="secret", details={"reason": reason})
        self.reason = reason


class SignatureError(SignoffError):
    """The message is not proven to be authentic; ``reason`` is a stable word for logs."""

    code = "invalid_signature"

    def __init__(self, reason: str) -> None:
        super().__init__(_WHY_SIGNATURE[reason], details={"reason": reason})
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a valid signature vouches for besides the body."""

    msg_id: str
    timestamp: int


def new_secret(token: Callable[[int], bytes]) -> str:
    """Return ``whsec_`` and 32 fresh bytes; ``token`` is the source, as ``secrets.token_bytes``."""
    return PREFIX + base64.b64encode(token(_NEW_KEY)).decode("ascii")


def decode_secret(secret: str) -> bytes:
    """Return the key bytes behind a ``whsec_`` secret, or raise ``SecretError``.

    Strict on purpose: lenient decoders drop foreign characters and sign with another key.
    """
    if not isinstance(secret, str):
        raise SecretError("not_text")
    if any(map(str.isspace, secret)):
        raise SecretError("whitespace")
    if not secret.startswith(PREFIX):
        raise SecretError("prefix")
    if len(secret) > _MAX_SECRET_TEXT:
        raise SecretError("too_long")
    key = _strict_base64(secret[len(PREFIX) :])
    if len(key) < _MIN_KEY:
        raise SecretError("too_short")
    if len(key) > _MAX_KEY:
        raise SecretError("too_long")
    return key


def _strict_base64(text: str) -> bytes:
    if "-" in text or "_" in text:
        raise SecretError("url_safe_alphabet")
    if _BASE64.fullmatch(text) is None:
        raise SecretError("alphabet")
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SecretError("padding") from None
    if base64.b64encode(raw).decode("ascii") != text:
        raise SecretError("not_canonical")
    return raw


def sign(secrets: Sequence[str], *, msg_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``: one ``v1,`` entry a secret, newest first."""
    if not secrets:
        raise SecretError("missing")
    keys = [decode_secret(secret) for secret in secrets]
    message = _message(msg_id, timestamp, body)
    return " ".join([_standard(key, message).decode("ascii") for key in keys])


def sign_hex(secret: str, *, msg_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature`` in the hex form: ``v1=`` and one digest."""
    return _hex(_text_key(secret), _message(msg_id, timestamp, body)).decode("ascii")


def sign_decision(secret: str, body: bytes, *, msg_id: str, timestamp: int) -> dict[str, str]:
    """Return the three headers that make ``body`` a valid signed callback."""
    return {
        ID_HEADER: msg_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: sign([secret], msg_id=msg_id, timestamp=timestamp, body=body),
    }


def verify(
    body: bytes,
    headers: Headers,
    secrets: str | Sequence[str],
    *,
    now: float | None = None,
    tolerance: int = TOLERANCE_S,
) -> Verified:
    """Return what the standard signature vouches for, or raise ``SignatureError``, nothing else.

    ``body`` is the raw body before any parsing. Several secrets: any may match, which is how a
    receiver bridges a rotation. The window is two-sided; ``now`` defaults to this host's clock.
    Other schemes beside a matching ``v1`` entry are ignored.
    """
    claim = _claim(body, headers, now=now, tolerance=tolerance)
    keys = _keys(secrets, decode_secret)
    entries = [entry for entry in claim.signature.split(b" ") if entry.startswith(b"v1,")]
    if not entries:
        raise SignatureError("malformed_signature")
    if len(entries) > _MAX_SIGNATURES:
        raise SignatureError("too_many_signatures")
    _match([_standard(key, claim.message) for key in keys], entries)
    return claim.verified


def verify_hex(
    body: bytes,
    headers: Headers,
    secrets: str | Sequence[str],
    *,
    now: float | None = None,
    tolerance: int = TOLERANCE_S,
) -> Verified:
    """Like ``verify``, for the hex form; a separate door, so that no sender can choose the form."""
    claim = _claim(body, headers, now=now, tolerance=tolerance)
    keys = _keys(secrets, _text_key)
    if not claim.signature.startswith(b"v1="):
        raise SignatureError("malformed_signature")
    _match([_hex(key, claim.message) for key in keys], [claim.signature])
    return claim.verified


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    verified: Verified
    signature: bytes
    message: bytes


def _claim(body: bytes, headers: Headers, *, now: float | None, tolerance: float) -> _Claim:
    if not isinstance(body, bytes):
        raise SignatureError("body_not_bytes")
    msg_id, stamp, signature = _three(headers)
    if _ID.fullmatch(msg_id) is None:
        raise SignatureError("malformed_id")
    if _TIMESTAMP.fullmatch(stamp) is None:
        raise SignatureError("malformed_timestamp")
    timestamp = int(stamp)
    # A receiver has no composition root to hand it a clock, so the default is read here.
    _check_window(timestamp, time.time() if now is None else now, tolerance)  # noqa: TID251
    if len(signature) > _MAX_SIGNATURE_TEXT:
        raise SignatureError("too_many_signatures")
    if not signature.isascii():
        raise SignatureError("malformed_signature")
    return _Claim(
        verified=Verified(msg_id=msg_id, timestamp=timestamp),
        signature=signature.encode("ascii"),
        message=f"{msg_id}.{stamp}.".encode("ascii") + body,
    )


def _three(headers: Headers) -> tuple[str, str, str]:
    found: dict[str, str] = {}
    for name, value in _pairs(headers):
        key = name.lower()
        # Lower-casing folds a few non-ASCII letters onto ASCII ones; those are other names.
        if key not in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER) or not name.isascii():
            continue
        if key in found:
            raise SignatureError("duplicate_header")
        found[key] = value
    if len(found) < 3:  # noqa: PLR2004 - the three names of the line above
        raise SignatureError("missing_header")
    return found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER]


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    try:
        # items() of multi-valued mappings (Starlette, multidict) repeats names: duplicates show.
        source = headers.items() if isinstance(headers, Mapping) else headers
        pairs = [(_text(name), _text(value)) for name, value in islice(source, _MAX_HEADERS + 1)]
    except Exception:  # noqa: BLE001 - foreign iterables may raise anything; total means total
        raise SignatureError("malformed_headers") from None
    if len(pairs) > _MAX_HEADERS:
        raise SignatureError("malformed_headers")
    return pairs


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")  # what HTTP header bytes are; every byte decodes
    if isinstance(value, str):
        return value
    raise TypeError(type(value))


def _check_window(timestamp: int, now: object, tolerance: object) -> None:
    moment, width = _number(now), _number(tolerance)
    if timestamp < moment - width:
        raise SignatureError("too_old")
    if timestamp > moment + width:
        raise SignatureError("too_new")


def _number(value: object) -> float:
    # The range is said positively, because a NaN compares false with everything.
    if isinstance(value, int | float) and 0 <= value <= _MAX_CLOCK:
        return value
    raise SignatureError("malformed_clock")


def _keys(secrets: object, decode: Callable[[str], bytes]) -> list[bytes]:
    if isinstance(secrets, str):
        secrets = (secrets,)
    if not isinstance(secrets, Sequence) or not secrets:
        raise SignatureError("malformed_secret")
    try:
        return [decode(secret) for secret in secrets]
    except SecretError:
        raise SignatureError("malformed_secret") from None


def _text_key(secret: str) -> bytes:
    if not isinstance(secret, str):
        raise SecretError("not_text")
    if not secret:
        raise SecretError("missing")
    try:
        return secret.encode("utf-8")
    except UnicodeEncodeError:
        raise SecretError("alphabet") from None


def _message(msg_id: object, timestamp: object, body: object) -> bytes:
    if not isinstance(body, bytes):
        raise SignatureError("body_not_bytes")
    if not isinstance(msg_id, str) or _ID.fullmatch(msg_id) is None:
        raise SignatureError("malformed_id")
    if type(timestamp) is not int or _TIMESTAMP.fullmatch(str(timestamp)) is None:
        raise SignatureError("malformed_timestamp")
    return f"{msg_id}.{timestamp}.".encode("ascii") + body


def _standard(key: bytes, message: bytes) -> bytes:
    return b"v1," + base64.b64encode(hmac.digest(key, message, "sha256"))


def _hex(key: bytes, message: bytes) -> bytes:
    return b"v1=" + hmac.digest(key, message, "sha256").hex().encode("ascii")


def _match(expected: Sequence[bytes], entries: Sequence[bytes]) -> None:
    # Compared as text, not decoded: only the one canonical spelling of a digest can match. All
    # pairs are compared, so time tells neither which secret nor which entry was the right one.
    matched = False
    for signature in expected:
        for entry in entries:
            matched |= hmac.compare_digest(signature, entry)
    if not matched:
        raise SignatureError("no_match")
