"""Our signatures against code that is not ours: the published library and a recorded example."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from signoff.signing import SignatureError, sign, sign_decision, sign_hex, verify, verify_hex

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
OLD = "whsec_" + base64.b64encode(b"fedcba9876543210fedcba9876543210").decode()
BODIES = ['{"a": 1.0, "b": 1e3}', '{"text":"né \\u2028 \\/ 😀"}', "{}", ""]


def now():
    return int(datetime.now(UTC).timestamp())


class TestPublishedLibrary:
    @pytest.mark.parametrize("body", BODIES)
    def test_the_library_accepts_what_we_sign(self, body):
        """S056: over the exact bytes, during a rotation as well."""
        made = sign_decision(SECRET, body.encode(), msg_id="msg_1", timestamp=now())
        Webhook(SECRET).verify(body, made, json_parse=False)
        rotating = sign([SECRET, OLD], msg_id="msg_1", timestamp=now(), body=body.encode())
        for secret in (SECRET, OLD):
            headers = {**made, "webhook-signature": rotating}
            Webhook(secret).verify(body, headers, json_parse=False)

    @pytest.mark.parametrize("body", BODIES)
    def test_we_accept_what_the_library_signs(self, body):
        """A receiver's decision signed with the library passes our callback."""
        moment = datetime.now(UTC)
        headers = {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(SECRET).sign("msg_1", moment, body),
        }
        assert verify(body.encode(), headers, [OLD, SECRET]).msg_id == "msg_1"

    def test_both_refuse_a_changed_body(self):
        """The same tampered message fails on both sides."""
        made = sign_decision(SECRET, b'{"a":1}', msg_id="msg_1", timestamp=now())
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify('{"a":2}', made)
        with pytest.raises(SignatureError):
            verify(b'{"a":2}', made, SECRET)

    @settings(max_examples=30)
    @given(body=st.text(), key=st.binary(min_size=24, max_size=64))
    def test_both_make_the_same_signature(self, body, key):
        """Byte for byte, for every body and every key length of the specification."""
        secret = "whsec_" + base64.b64encode(key).decode()
        moment = datetime.fromtimestamp(1_767_225_600, UTC)
        try:
            raw = body.encode()
        except UnicodeEncodeError:
            return
        ours = sign([secret], msg_id="m", timestamp=1_767_225_600, body=raw)
        assert ours == Webhook(secret).sign("m", moment, body)


class TestHexFormOfTheSeed:
    SECRET = "whsec_test_0123456789abcdef0123456789abcdef"
    BODY = (
        b'{"id":"evt_01HZX3T9","type":"run.awaiting_input","created_at":"2026-01-01T00:00:00Z",'
        b'"data":{"run_id":42,"status":"awaiting_approval","questions":[{"question":"Which?",'
        b'"header":"H","multiSelect":false,"options":[{"label":"A"},{"label":"B"}]}]}}'
    )
    SIGNATURE = "v1=3e2b03fef87e0f6c57ad5682383841466e8076e6218ffde6802a911c03537c23"
    TIMESTAMP = 1_767_225_600

    def test_the_worked_example_is_reproduced(self):
        """The key is the secret's text, prefix included; 244 bytes of body."""
        assert len(self.BODY) == 244
        made = sign_hex(
            self.SECRET, msg_id="evt_01HZX3T9", timestamp=self.TIMESTAMP, body=self.BODY
        )
        assert made == self.SIGNATURE

    def test_the_worked_example_verifies(self):
        """Within its own time it is accepted; today it is too old."""
        headers = {
            "Webhook-Id": "evt_01HZX3T9",
            "Webhook-Timestamp": str(self.TIMESTAMP),
            "Webhook-Signature": self.SIGNATURE,
        }
        verify_hex(self.BODY, headers, self.SECRET, now=self.TIMESTAMP)
        with pytest.raises(SignatureError, match="past"):
            verify_hex(self.BODY, headers, self.SECRET)
