"""Signed decision callbacks: decisions without an API key, proven by an endpoint's secret.

The order is what keeps it safe: signature over the raw bytes, media type, parsing, scope of the
run, and only then the claim on the webhook-id and the decision itself. What is refused before the
claim changes nothing and keeps nothing; the same bytes are refused the same way again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import Receive, Scope

from service.auth import bearer
from service.body import check, check_media, read_raw
from service.context import Context, path_id
from service.decide import CODES, Docket, decide, decide_batch, read_decided
from service.dispatch import check_open
from service.errors import refusal, status_of
from service.idempotency import body_digest, reused
from service.operation import header, ok, operation
from service.render import Json, decided_body
from signoff.domain.approval import Decider
from signoff.domain.decision import Decision
from signoff.domain.error import (
    InvalidFieldError,
    MissingError,
    SignoffError,
    StaleError,
    UnauthorizedError,
    UnavailableError,
)
from signoff.domain.event import RUN_AWAITING_INPUT
from signoff.domain.gate import Gate
from signoff.signing import SignatureError, Verified, verify
from signoff.store import keys
from signoff.store.endpoints import Endpoint
from signoff.store.records import RunRecord
from signoff.strictjson import loads
from signoff.wire.decision import CallbackEnvelope, SignedBatch, SignedDecision, read_batch
from signoff.wire.gate import DecidedBody

logger = logging.getLogger(__name__)

PATH = "/callbacks/{webhook_id}"
TRIES = 5
_KEPT_BELOW = 500
# Verified against when there is no endpoint, so that time does not tell that there is none.
_NOBODY = "whsec_" + "A" * 43 + "="


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A verified request: by which endpoint, about which run, and what it decides."""

    endpoint: Endpoint
    message_id: str
    run: RunRecord
    gates: Sequence[Gate]
    decisions: Sequence[Decision]
    batch: bool


@operation(
    ok(DecidedBody),
    body=CallbackEnvelope,
    parameters=(
        header("webhook-id", "the same for every repeat of the request", required=True),
        header("webhook-timestamp", "Unix seconds, of now", required=True),
        header("webhook-signature", "`v1,` and the signature of id, time and body", required=True),
    ),
    refuses=(*CODES, "idempotency_key_reuse", "unauthorized"),
)
async def post(context: Context, scope: Scope, receive: Receive) -> Json:
    """Takes a signed decision; a repeat of it gets the very same answer."""
    check_open(context, scope)
    raw = await read_raw(scope, receive)
    for _ in range(TRIES):
        claim = await _claim(context, scope, raw)
        key = keys.callback(claim.endpoint.id, claim.message_id)
        found = await context.store.reservations.reserve(
            key,
            digest=body_digest(raw),
            guard=(keys.endpoint(claim.endpoint.id), claim.endpoint.rev),
        )
        if found.kind == "stale":
            # The endpoint changed under us: its secret may be another, so all is checked anew.
            continue
        if found.kind == "other":
            raise reused()
        if found.answer:
            return _replayed(found.answer)
        answer = await _decide(context, claim)
        if answer.status_code >= _KEPT_BELOW:
            return answer
        kept = f"{answer.status_code} {bytes(answer.body).decode()}"
        return _replayed(await context.store.reservations.answer(key, kept))
    raise UnavailableError("the endpoint keeps changing")


async def _claim(context: Context, scope: Scope, raw: bytes) -> Claim:
    endpoint, verified = await _verify(context, scope, raw)
    check_media(scope)
    envelope = check(CallbackEnvelope, loads(raw))
    batch = envelope.type == "decisions"
    decisions: Sequence[Decision]
    if batch:
        many = check(SignedBatch, envelope.data, under="data")
        run_id, decisions = many.run_id, _read(lambda: read_batch(many.decisions))
    else:
        one = check(SignedDecision, envelope.data, under="data")
        run_id, decisions = one.run_id, _read(lambda: [one.read()])
    run, gates = await _load(context, endpoint, run_id, decisions)
    return Claim(
        endpoint=endpoint,
        message_id=verified.msg_id,
        run=run,
        gates=gates,
        decisions=decisions,
        batch=batch,
    )


def _read(reading: Callable[[], list[Decision]]) -> list[Decision]:
    try:
        return reading()
    except InvalidFieldError as error:
        raise InvalidFieldError(error.message, field=f"data.{error.field}") from None


async def _verify(context: Context, scope: Scope, raw: bytes) -> tuple[Endpoint, Verified]:
    webhook_id = path_id(scope, "webhook_id")
    endpoint = None if webhook_id is None else await context.store.endpoints.find(webhook_id)
    now_ms = context.now_ms()
    secrets = (_NOBODY,) if endpoint is None else endpoint.live_secrets(now_ms)
    try:
        verified = verify(raw, scope["headers"], secrets, now=now_ms / 1000)
    except SignatureError as error:
        known = "-" if endpoint is None else endpoint.id
        logger.info("callback_unverified endpoint=%s reason=%s", known, error.reason)
        raise _unauthorized() from None
    if endpoint is None or not endpoint.active or RUN_AWAITING_INPUT not in endpoint.events:
        raise _unauthorized()
    if bearer(scope) is not None:
        # Not needed; but a key of another account beside the signature is a confused caller.
        principal = await context.keys.principal(scope)
        if principal.account != endpoint.account:
            raise _unauthorized()
    return endpoint, verified


async def _load(
    context: Context, endpoint: Endpoint, run_id: int, decisions: Sequence[Decision]
) -> tuple[RunRecord, Sequence[Gate]]:
    try:
        run, gates = await read_decided(context, endpoint.account, run_id, decisions)
    except MissingError:
        raise _unauthorized() from None
    if run.user_id != endpoint.user_id:
        raise _unauthorized()
    return run, gates


async def _decide(context: Context, claim: Claim) -> Json:
    docket = Docket(
        account=claim.endpoint.account,
        run_id=claim.run.id,
        known=(claim.run, claim.gates),
        decisions=claim.decisions,
        decider=Decider.of_endpoint(claim.endpoint.id, claim.endpoint.user_id),
    )
    try:
        ruling = await (decide_batch if claim.batch else decide)(context, docket)
    except (StaleError, UnavailableError):
        raise
    except SignoffError as error:
        if status_of(error) >= _KEPT_BELOW:
            raise
        if error.field is not None:
            error.field = f"data.{error.field}"
        return refusal(error, request_id=f"req_{context.new_id()}", route=f"POST {PATH}")
    return Json(decided_body(ruling.resumed, ruling.gates))


def _replayed(kept: str) -> Json:
    status, _, body = kept.partition(" ")
    return Json(body.encode(), int(status))


def _unauthorized() -> UnauthorizedError:
    return UnauthorizedError("the callback is not signed by an endpoint that may decide here")
