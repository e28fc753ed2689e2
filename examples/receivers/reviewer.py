"""What a receiver does besides HTTP: verify, take each event once, decide, and say so signed.

The four applications beside this file differ only in how their framework hands over the raw body.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import httpx

from signoff import sign_decision, verify
from signoff.signing import Headers

TRUSTED = "@example.com"


class Reviewer:
    """Decides the gates of the events that it is handed; the environment names the endpoint."""

    def __init__(self, post: Callable[..., httpx.Response] = httpx.post) -> None:
        self._secret = os.environ["SIGNOFF_WEBHOOK_SECRET"]
        self._callback_url = os.environ["SIGNOFF_CALLBACK_URL"]
        self._post = post
        # In production a table with a unique column, written together with the work that is due:
        # then a process that dies in between loses nothing.
        self._seen: set[str] = set()

    def accept(self, body: bytes, headers: Headers) -> dict[str, Any] | None:
        """The event, or None if it was here before; raises SignatureError, and nothing else.

        ``body`` must be the bytes that arrived, before any parsing.
        """
        verified = verify(body, headers, self._secret)
        if verified.msg_id in self._seen:
            return None
        self._seen.add(verified.msg_id)
        event: dict[str, Any] = json.loads(body)
        return event

    def handle(self, event: dict[str, Any]) -> None:
        """Decides what the event asks for; runs after the delivery was acknowledged."""
        if event["type"] != "run.awaiting_input":
            return
        content = {
            "run_id": event["data"]["run_id"],
            "decisions": [decide(request) for request in event["data"]["requests"]],
        }
        body = json.dumps({"type": "decisions", "data": content}).encode()
        # An id made from the event's: deciding it twice has no second effect.
        headers = sign_decision(
            self._secret, body, msg_id=f"dec_{event['id']}", timestamp=int(time.time())
        )
        headers["content-type"] = "application/json"
        self._post(self._callback_url, content=body, headers=headers).raise_for_status()


def decide(request: dict[str, Any]) -> dict[str, Any]:
    """One decision. Yours asks a person; this one trusts its own domain and every first option."""
    decision: dict[str, Any] = {"request_id": request["request_id"]}
    if request["kind"] in ("question", "plan"):
        questions = request["tool_input"]["questions"]
        decision["answers"] = {
            question["question"]: question["options"][0]["label"] for question in questions
        }
    elif str(request["tool_input"].get("to", TRUSTED)).endswith(TRUSTED):
        decision["decision"] = "allow"
        # What is allowed is what was shown here, or nothing.
        decision["expected_digest"] = request["digest"]
    else:
        decision["decision"] = "deny"
        decision["reason"] = "only addresses of our own domain"
    return decision
