"""What a signature proves, and that nothing a stranger sends ends in another exception."""

import base64
import contextlib
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.signing import (
    SecretError,
    SignatureError,
    Verified,
    decode_secret,
    new_secret,
    sign,
    sign_decision,
    sign_hex,
    verify,
    verify_hex,
)

KEY = bytes(range(32))
OTHER_KEY = bytes(range(32, 64))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = "whsec_" + base64.b64encode(OTHER_KEY).decode()
NOW = 1_767_225_600
ID = "evt_01HZX3T9"
BODY = '{"decision": "allow",\n "text": "né"}'.encode()
NAMES = ("webhook-id", "webhook-timestamp", "webhook-signature")


def headers_for(body=BODY, secret=SECRET, msg_id=ID, timestamp=NOW, **changed):
    made = sign_decision(secret, body, msg_id=msg_id, timestamp=timestamp)
    return {**made, **{name.replace("_", "-"): value for name, value in changed.items()}}


def refusal(body=BODY, headers=None, secrets=SECRET, **options):
    with pytest.raises(SignatureError) as caught:
        verify(
            body, headers_for() if headers is None else headers, secrets, **{"now": NOW, **options}
        )
    assert caught.value.code == "invalid_signature"
    return caught.value.reason


def b64(raw):
    return base64.b64encode(raw).decode()


def mac(key, message, algorithm="sha256"):
    return hmac.digest(key, message, algorithm)


MESSAGE = f"{ID}.{NOW}.".encode() + BODY
GOOD = "v1," + b64(mac(KEY, MESSAGE))
# The last of 43 characters carries four bits of digest and two that must be zero.
STRAY_BITS = GOOD[:-2] + chr(ord(GOOD[-2]) + 1) + "="


class TestAcceptance:
    def test_a_signed_message_verifies(self):
        """S067: what sign_decision makes, verify accepts, and vouches for id and time."""
        assert verify(BODY, headers_for(), SECRET, now=NOW) == Verified(msg_id=ID, timestamp=NOW)

    def test_the_signature_is_the_one_of_the_specification(self):
        """The header is v1 and padded base64 of HMAC-SHA256 over id, time and raw body."""
        assert sign([SECRET], msg_id=ID, timestamp=NOW, body=BODY) == GOOD

    @pytest.mark.parametrize("offset", [-300, -299, 0, 299, 300])
    def test_the_window_is_open_on_both_sides(self, offset):
        """T43: up to 300 seconds early or late is accepted."""
        verify(BODY, headers_for(timestamp=NOW + offset), SECRET, now=NOW)

    @pytest.mark.parametrize(
        "header",
        [
            f"v2,x {GOOD}",
            f"v1=00 {GOOD}",
            f"{GOOD} v1a,AAAA",
            f"v1a,{GOOD[3:]} {GOOD}",
            f"v1,%%%% {GOOD}",
            f"v1,{'A' * 43}= {GOOD}",
            f"é? {GOOD}".encode("ascii", "replace").decode(),
            f"  {GOOD} ",
            f"no-comma ,, {GOOD}",
        ],
    )
    def test_foreign_entries_beside_a_good_one_are_ignored(self, header):
        """S072: unknown schemes and broken entries take nothing from a good entry."""
        verify(BODY, headers_for(webhook_signature=header), SECRET, now=NOW)

    def test_rotation_is_bridged_from_both_ends(self):
        """S078: two signing keys, or two accepted keys, overlap; a key in neither list fails."""
        both = headers_for(
            webhook_signature=sign([OTHER, SECRET], msg_id=ID, timestamp=NOW, body=BODY)
        )
        assert both["webhook-signature"].split(" ")[1] == GOOD
        verify(BODY, both, SECRET, now=NOW)
        verify(BODY, both, OTHER, now=NOW)
        verify(BODY, headers_for(), [OTHER, SECRET], now=NOW)
        assert refusal(headers=headers_for(secret=OTHER)) == "no_match"

    def test_header_names_have_no_case(self):
        """Any case, and any of the shapes that frameworks hand out, is understood."""
        made = headers_for()
        for shape in (
            {name.title(): value for name, value in made.items()},
            list(made.items()),
            [(name.upper().encode(), value.encode()) for name, value in made.items()],
            iter([("accept", "*/*"), *made.items()]),
        ):
            verify(BODY, shape, SECRET, now=NOW)

    def test_the_clock_of_the_host_is_the_default(self):
        """Without now, a message from years ago is too old."""
        with pytest.raises(SignatureError) as caught:
            verify(BODY, headers_for(timestamp=1), SECRET)
        assert caught.value.reason == "too_old"


class TestRefusal:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_missing_header_is_refused(self, name):
        """S067: each of the three is needed."""
        made = headers_for()
        del made[name]
        assert refusal(headers=made) == "missing_header"

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("value", [None, "different"])
    def test_a_header_given_twice_is_refused(self, name, value):
        """S073: two parsers could each believe another one, also when the values agree."""
        made = headers_for()
        pairs = [*made.items(), (name.title(), value or made[name])]
        assert refusal(headers=pairs) == "duplicate_header"

    @pytest.mark.parametrize(
        ("timestamp", "reason"),
        [
            (NOW - 302, "too_old"),
            (NOW - 301, "too_old"),
            (NOW + 301, "too_new"),
            (NOW + 302, "too_new"),
            (NOW * 1000, "too_new"),
            (0, "too_old"),
        ],
    )
    def test_a_time_outside_the_window_is_refused(self, timestamp, reason):
        """S068: rightly signed, but too far from now in either direction."""
        assert refusal(headers=headers_for(timestamp=timestamp)) == reason

    @pytest.mark.parametrize(
        "text",
        [
            "",
            f"-{NOW}",
            f"+{NOW}",
            f"0{NOW}",
            f" {NOW}",
            f"{NOW} ",
            f"{NOW}\n",
            f"{NOW}.0",
            "1.767e9",
            "1_767_225_600",
            hex(NOW),
            "nan",
            "inf",
            "1" + "0" * 400,
            str(NOW).translate({ord("1"): "\u0661"}),
            str(NOW).translate({ord("1"): "\uff11"}),
        ],
    )
    def test_another_spelling_of_the_time_is_refused(self, text):
        """S069: plain decimal seconds only, even when the signature covers the odd spelling."""
        signature = "v1," + b64(mac(KEY, f"{ID}.{text}.".encode() + BODY))
        made = headers_for(webhook_timestamp=text, webhook_signature=signature)
        assert refusal(headers=made) == "malformed_timestamp"

    @pytest.mark.parametrize(
        "header",
        [
            GOOD + "=",
            GOOD[:-1],
            GOOD[:-2],
            GOOD[:-1] + "\n",
            GOOD + "\n",
            GOOD[:10] + "\n" + GOOD[10:],
            GOOD.replace("v1,", "v1, "),
            GOOD.replace("v1,", "v1,!"),
            STRAY_BITS,
            "v1," + mac(KEY, MESSAGE).hex(),
            "v1," + b64(b"\0" * 32),
            "v1," + b64(b"\0"),
            "v1,",
            GOOD + "," + GOOD,
            "v1," + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        ],
    )
    def test_another_spelling_of_the_signature_is_refused(self, header):
        """S070: a digest has one spelling; all others count as no match."""
        assert refusal(headers=headers_for(webhook_signature=header)) == "no_match"

    @pytest.mark.parametrize(
        "header",
        ["", " ", GOOD[3:], "V1," + GOOD[3:], "v0," + GOOD[3:], "v1a," + GOOD[3:], "v1", "é"],
    )
    def test_a_header_without_a_known_scheme_is_refused(self, header):
        """S072: no other label turns a good digest into a signature."""
        assert refusal(headers=headers_for(webhook_signature=header)) == "malformed_signature"

    def test_a_tab_does_not_separate_entries(self):
        """One separator only, so that every reader sees the same entries."""
        assert refusal(headers=headers_for(webhook_signature=f"{GOOD}\t{GOOD}")) == "no_match"

    @pytest.mark.parametrize("header", ["v1,x " * 5000 + GOOD, "v1," + "A" * 1_000_000])
    def test_a_flood_of_signatures_is_refused_unread(self, header):
        """S071: more than any rotation needs is not looked at."""
        assert refusal(headers=headers_for(webhook_signature=header)) == "too_many_signatures"

    def test_the_number_of_entries_is_bounded(self):
        """S071: also short ones."""
        header = "v1,x " * 40 + GOOD
        assert refusal(headers=headers_for(webhook_signature=header)) == "too_many_signatures"

    @pytest.mark.parametrize(
        "body",
        [
            json.dumps(json.loads(BODY)).encode(),
            json.dumps(json.loads(BODY), indent=1, sort_keys=True).encode(),
            b"\xef\xbb\xbf" + BODY,
            BODY + b"\n",
            BODY.decode().encode("utf-16"),
            b"",
        ],
    )
    def test_a_rewritten_body_is_refused(self, body):
        """S074: the signature covers the bytes, not what they mean."""
        assert refusal(body=body) == "no_match"

    def test_the_border_between_id_and_time_cannot_be_shifted(self):
        """S075: an id with a dot would give two messages one signature."""
        signature = "v1," + b64(mac(KEY, f"a.{NOW}.{NOW}.".encode() + BODY))
        made = headers_for(webhook_id=f"a.{NOW}", webhook_signature=signature)
        assert refusal(headers=made) == "malformed_id"
        shifted = headers_for(body=f"{NOW}.".encode() + BODY, msg_id="a")
        assert refusal(body=BODY, headers={**shifted, "webhook-id": f"a.{NOW}"}) == "malformed_id"

    @pytest.mark.parametrize("msg_id", ["", "a" * 129, "a b", "a\n", "é", "a/b", "a:b"])
    def test_an_odd_id_is_refused(self, msg_id):
        """The id is a key of a store later on; its alphabet is settled here."""
        assert refusal(headers=headers_for(webhook_id=msg_id)) == "malformed_id"

    @pytest.mark.parametrize(
        "digest",
        [
            mac(SECRET.encode(), MESSAGE),
            mac(SECRET[6:].encode(), MESSAGE),
            mac(b"", MESSAGE),
            mac(KEY, BODY),
            mac(KEY, f"{NOW}.{ID}.".encode() + BODY),
            mac(KEY, MESSAGE, "sha1").ljust(32, b"\0"),
            mac(KEY, MESSAGE, "sha512")[:32],
            hashlib.sha256(KEY + MESSAGE).digest(),
        ],
    )
    def test_another_construction_is_refused(self, digest):
        """S076: only the one key, the one order and the one hash count."""
        assert refusal(headers=headers_for(webhook_signature="v1," + b64(digest))) == "no_match"

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
    def test_id_and_time_are_covered(self, name):
        """T47: a captured message cannot get another id or a fresh time."""
        fresh = {"webhook-id": "evt_2", "webhook-timestamp": str(NOW + 1)}[name]
        assert refusal(headers={**headers_for(), name: fresh}) == "no_match"

    def test_the_hex_form_is_no_way_in(self):
        """A hex signature made with the very secret does not pass the standard door, nor back."""
        value = sign_hex(SECRET, msg_id=ID, timestamp=NOW, body=BODY)
        made = headers_for(webhook_signature=value)
        assert refusal(headers=made) == "malformed_signature"
        with pytest.raises(SignatureError, match="known scheme"):
            verify_hex(BODY, headers_for(), SECRET, now=NOW)

    @pytest.mark.parametrize("body", ["text", bytearray(b"x"), memoryview(b"x"), None, 1, {}])
    def test_a_body_that_is_not_bytes_is_refused(self, body):
        """Decoded or parsed bodies have lost what was signed."""
        assert refusal(body=body) == "body_not_bytes"

    @pytest.mark.parametrize(
        "headers",
        [
            0,
            [1],
            ["ab", 3],
            [("a",)],
            [("a", 1)],
            [(1, "a")],
            [("a", "b", "c")],
            iter([None]),
            {"x": None},
            [("a", "b")] * 1001,
        ],
    )
    def test_headers_that_are_not_pairs_are_refused(self, headers):
        """Whatever a framework hands over, the outcome is a refusal."""
        assert refusal(headers=headers) == "malformed_headers"

    def test_a_look_alike_header_name_is_another_header(self):
        """The Kelvin sign lower-cases to k, but is not the k of webhook-id."""
        made = headers_for()
        made["webhoo\u212a-id"] = made.pop("webhook-id")
        assert refusal(headers=made) == "missing_header"

    @pytest.mark.parametrize("secrets", ["", [], None, "password", [SECRET, "x"], [None], 7, ()])
    def test_a_malformed_secret_is_a_refusal_not_a_crash(self, secrets):
        """Nothing verifies against a secret that is none, also beside a good one."""
        assert refusal(secrets=secrets) == "malformed_secret"

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, 10**400, "300", [], 2j])
    @pytest.mark.parametrize("name", ["now", "tolerance"])
    def test_a_clock_that_is_none_never_opens_the_window(self, name, number):
        """A NaN compares false with everything; it must not read as inside."""
        assert refusal(**{name: number}) == "malformed_clock"


class TestSecrets:
    def test_a_new_secret_is_32_bytes_of_the_source(self):
        """The text decodes to exactly what the source gave."""
        assert new_secret(lambda size: KEY[:size]) == SECRET
        assert decode_secret(SECRET) == KEY

    @pytest.mark.parametrize("size", [24, 25, 32, 63, 64])
    def test_secrets_of_24_to_64_bytes_are_accepted(self, size):
        """The range of the specification, ends included."""
        assert decode_secret("whsec_" + b64(b"k" * size)) == b"k" * size

    @pytest.mark.parametrize(
        ("secret", "reason"),
        [
            (None, "not_text"),
            (b"whsec_", "not_text"),
            ("password", "prefix"),
            (SECRET[6:], "prefix"),
            (SECRET.upper(), "prefix"),
            ("v1," + SECRET, "prefix"),
            (SECRET + "\n", "whitespace"),
            (" " + SECRET, "whitespace"),
            ("whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(), "url_safe_alphabet"),
            ("whsec_" + "é" * 44, "alphabet"),
            ("whsec_" + "!" * 44, "alphabet"),
            ("whsec_=" + "A" * 43, "alphabet"),
            (SECRET[:-1], "padding"),
            (SECRET + "=", "padding"),
            ("whsec_" + "A" * 42 + "B=", "not_canonical"),
            ("whsec_" + b64(b"k" * 23), "too_short"),
            ("whsec_", "too_short"),
            ("whsec_" + b64(b"k" * 65), "too_long"),
            ("whsec_" + "A" * 1_000_000, "too_long"),
        ],
    )
    def test_a_secret_has_one_spelling(self, secret, reason):
        """S059, T40: everything else is refused with the reason, and without the secret in it."""
        with pytest.raises(SecretError) as caught:
            decode_secret(secret)
        assert (caught.value.code, caught.value.field) == ("invalid_secret", "secret")
        assert caught.value.reason == reason
        assert not secret or str(secret)[6:] == "" or str(secret)[6:] not in str(caught.value)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"msg_id": "a.b"}, "malformed_id"),
            ({"msg_id": 1}, "malformed_id"),
            ({"timestamp": -1}, "malformed_timestamp"),
            ({"timestamp": 1.5}, "malformed_timestamp"),
            ({"timestamp": True}, "malformed_timestamp"),
            ({"body": "text"}, "body_not_bytes"),
        ],
    )
    def test_nothing_unverifiable_is_ever_signed(self, change, reason):
        """The signer refuses what the verifier would."""
        message = {"msg_id": ID, "timestamp": NOW, "body": BODY, **change}
        for call in (lambda: sign([SECRET], **message), lambda: sign_hex(SECRET, **message)):
            with pytest.raises(SignatureError) as caught:
                call()
            assert caught.value.reason == reason

    @pytest.mark.parametrize("secret", [None, "", b"x", "\ud800"])
    def test_signing_without_a_secret_is_refused(self, secret):
        """There is no unsigned or empty-keyed delivery."""
        for call in (
            lambda: sign([secret], msg_id=ID, timestamp=NOW, body=BODY),
            lambda: sign([], msg_id=ID, timestamp=NOW, body=BODY),
            lambda: sign_hex(secret, msg_id=ID, timestamp=NOW, body=BODY),
        ):
            with pytest.raises(SecretError):
                call()


class TestHexForm:
    def made(self, value=None):
        value = value or sign_hex("any text", msg_id=ID, timestamp=NOW, body=BODY)
        return headers_for(webhook_signature=value)

    def test_a_signed_message_verifies(self):
        """The key is the text as it is, of any shape; several secrets bridge a rotation."""
        assert verify_hex(BODY, self.made(), "any text", now=NOW).msg_id == ID
        verify_hex(BODY, self.made(), ["new", "any text"], now=NOW)

    def test_exactly_one_lower_case_signature_is_accepted(self):
        """Lists, other cases and cut values are refused."""
        value = self.made()["webhook-signature"]
        for other in (f"{value} {value}", f"{value},{value}", value.upper(), value[:-1], "v1="):
            with pytest.raises(SignatureError):
                verify_hex(BODY, self.made(other), "any text", now=NOW)

    @pytest.mark.parametrize("secrets", ["", [], None, [None], "\ud800"])
    def test_a_malformed_secret_is_a_refusal(self, secrets):
        """Total here as well."""
        with pytest.raises(SignatureError) as caught:
            verify_hex(BODY, self.made(), secrets, now=NOW)
        assert caught.value.reason == "malformed_secret"


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.tuples()
)
header_text = st.one_of(
    st.text(max_size=80),
    st.binary(max_size=80),
    st.just(str(NOW)),
    st.just(ID),
    st.just(GOOD),
    anything,
)
header_name = st.one_of(st.sampled_from([*NAMES, "Webhook-Id"]), anything)
header_sets = st.one_of(
    anything,
    st.dictionaries(header_name, header_text, max_size=5),
    st.lists(st.tuples(header_name, header_text), max_size=6),
    st.fixed_dictionaries(dict.fromkeys(NAMES, header_text)),
)
secret_sets = st.one_of(anything, st.just(SECRET), st.lists(st.one_of(anything, st.just(SECRET))))


class TestTotality:
    @given(body=st.one_of(anything, st.just(BODY)), headers=header_sets, secrets=secret_sets)
    def test_verification_is_total(self, body, headers, secrets):
        """Any input at all ends in a value or in the one error."""
        for check in (verify, verify_hex):
            with contextlib.suppress(SignatureError):
                check(body, headers, secrets, now=NOW)

    @given(header=st.text(st.characters(max_codepoint=255), max_size=200))
    def test_any_signature_header_is_refused(self, header):
        """T46: no text that lacks the good digest passes or crashes."""
        if GOOD not in header:
            refusal(headers=headers_for(webhook_signature=header))

    @given(clock=anything, tolerance=anything)
    def test_any_clock_is_survived(self, clock, tolerance):
        """Odd parameters of the receiver's own are refusals as well."""
        with contextlib.suppress(SignatureError):
            verify(BODY, headers_for(), SECRET, now=clock, tolerance=tolerance)

    @given(secret=anything)
    def test_decoding_a_secret_is_total(self, secret):
        """Any value is a key or the one error."""
        with contextlib.suppress(SecretError):
            assert 24 <= len(decode_secret(secret)) <= 64

    @given(
        body=st.binary(max_size=300),
        key=st.binary(min_size=24, max_size=64),
        msg_id=st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True),
        timestamp=st.integers(0, 10**15 - 1),
    )
    def test_what_is_signed_verifies(self, body, key, msg_id, timestamp):
        """Roundtrip over all bodies, keys, ids and times."""
        secret = "whsec_" + b64(key)
        made = sign_decision(secret, body, msg_id=msg_id, timestamp=timestamp)
        expected = Verified(msg_id=msg_id, timestamp=timestamp)
        assert verify(body, made, secret, now=timestamp) == expected
        made["webhook-signature"] = sign_hex(secret, msg_id=msg_id, timestamp=timestamp, body=body)
        assert verify_hex(body, made, secret, now=timestamp) == expected

    @given(data=st.data())
    def test_any_changed_byte_fails(self, data):
        """One bit anywhere in body, id, time or signature, and nothing verifies."""
        made = headers_for()
        parts = {"body": BODY, **{name: value.encode() for name, value in made.items()}}
        where = data.draw(st.sampled_from(sorted(parts)))
        index = data.draw(st.integers(0, len(parts[where]) - 1))
        bit = data.draw(st.integers(0, 7))
        changed = bytearray(parts[where])
        changed[index] ^= 1 << bit
        parts[where] = bytes(changed)
        body = parts.pop("body")
        refusal(body=body, headers=[*parts.items()])
