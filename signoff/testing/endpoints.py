"""The fake's webhook endpoints: what they are, and what would have been sent to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from signoff.domain import event as events
from signoff.domain.error import InvalidFieldError, MissingError, SignoffError
from signoff.domain.timestamp import iso
from signoff.signing import new_secret
from signoff.testing.webhook import SignedWebhook, sign_event
from signoff.wire.webhook import ChangeWebhook, CreateWebhook

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Endpoints:
    """The endpoints by id; ``sent`` grows by one signed delivery for each event and endpoint."""

    def __init__(
        self,
        *,
        new_id: Callable[[str], str],
        now_ms: Callable[[], int],
        token: Callable[[int], bytes],
    ) -> None:
        self._new_id, self._now_ms, self._token = new_id, now_ms, token
        self._rows: dict[int, dict[str, Any]] = {}
        self._old: dict[int, str] = {}
        self.sent: list[SignedWebhook] = []

    def create(self, body: CreateWebhook, signature: str) -> dict[str, Any]:
        """A new endpoint with its whole secret."""
        _check_url(body.url)
        at = iso(self._now_ms())
        number = max(self._rows, default=0) + 1
        self._rows[number] = {
            "id": number,
            "url": body.url,
            "events": _events(events.DEFAULT_EVENTS if body.events is None else body.events),
            "secret": new_secret(self._token),
            "signature": body.signature or signature,
            "active": True,
            "disabled_reason": None,
            "user_id": body.user_id,
            "callback_url": f"http://signoff.test/v1/callbacks/{number}",
            "created_at": at,
            "updated_at": at,
        }
        return dict(self._rows[number])

    def change(self, number: int, body: ChangeWebhook) -> dict[str, Any]:
        """The endpoint as changed; its secret is whole if it was rotated."""
        row = self.row(number)
        if body.url is not None:
            _check_url(body.url)
            row["url"] = body.url
        if body.events is not None:
            row["events"] = _events(body.events)
        if body.active is not None:
            row["active"] = body.active
        if body.rotate_secret:
            self._old[number] = row["secret"]
            row["secret"] = new_secret(self._token)
            return dict(row)
        return masked(row)

    def delete(self, number: int) -> None:
        """Removes an endpoint."""
        self.row(number)
        del self._rows[number]

    def row(self, number: int) -> dict[str, Any]:
        """The endpoint itself."""
        if number not in self._rows:
            raise MissingError(f"no webhook {number}")
        return self._rows[number]

    def listed(self, user_id: str | None) -> list[dict[str, Any]]:
        """The endpoints of one scope, newest first."""
        found = [masked(row) for row in self._rows.values() if row["user_id"] == user_id]
        return found[::-1]

    def secrets(self, number: int) -> list[str]:
        """The secrets that a callback may be signed with."""
        row = self._rows.get(number)
        if row is None or not row["active"] or events.RUN_AWAITING_INPUT not in row["events"]:
            return []
        return [row["secret"], *([self._old[number]] if number in self._old else [])]

    def emit(self, kind: str, user_id: str | None, payload: Mapping[str, Any]) -> None:
        """Sends an event to every endpoint of the scope that wants it."""
        event = self._event(kind, payload)
        for row in self._rows.values():
            if row["active"] and row["user_id"] == user_id and kind in row["events"]:
                self._send(row, event)

    def test(self, number: int) -> dict[str, Any]:
        """Sends ``webhook.test`` to one endpoint."""
        row = self.row(number)
        if not row["active"]:
            raise SignoffError("the webhook is not active", code="webhook_inactive")
        event = self._event(events.WEBHOOK_TEST, {"webhook_id": number, "user_id": row["user_id"]})
        self._send(row, event)
        return {"status": "ok", "event_id": event.id, "webhook_endpoint_id": number}

    def _event(self, kind: str, payload: Mapping[str, Any]) -> events.Event:
        return events.make_event(self._new_id("evt"), kind, iso(self._now_ms()), payload)

    def _send(self, row: Mapping[str, Any], event: events.Event) -> None:
        self.sent.append(
            sign_event(
                event,
                secret=row["secret"],
                signature=row["signature"],
                timestamp=self._now_ms() // 1000,
                url=row["url"],
            )
        )


def masked(row: Mapping[str, Any]) -> dict[str, Any]:
    """An endpoint as it is shown after it was made."""
    return {**row, "secret": f"{row['secret'][:4]}..."}


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname
    except ValueError:
        scheme, host = "", None
    if not host or scheme not in ("http", "https"):
        raise InvalidFieldError("the URL is no https address", code="invalid_url", field="url")
    if scheme == "http" and host not in _LOOPBACK:
        raise InvalidFieldError("https is needed", code="invalid_url", field="url")


def _events(names: Any) -> list[str]:
    for n, name in enumerate(names):
        if name not in events.EVENT_TYPES:
            msg = f"events[{n}]: no event is called {name[:64]!a}"
            raise InvalidFieldError(msg, field=f"events[{n}]")
    return list(dict.fromkeys(names))
