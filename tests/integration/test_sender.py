"""One attempt against real receivers on loopback, most of which misbehave."""

import asyncio
import base64
import datetime as dt
import gzip
import io
import ipaddress
import os
import ssl
import tracemalloc
from contextlib import asynccontextmanager, contextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from signoff.signing import verify, verify_hex
from webhooks.guard import Policy
from webhooks.sender import Sender, Signing
from webhooks.trust import system_trust

pytestmark = pytest.mark.anyio

NOW = 1_767_225_600
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
STANDARD = Signing(kind="standard", secrets=(SECRET,))
LOOPBACK = Policy.load(None, dev=True)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BODY = '{"id":"evt_1","n":1.0,"text":"né"}'.encode()
FAST_S = 0.4
TRUST = system_trust()  # reading it takes longer than most attempts


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Request:
    """One request as a receiver read it, byte for byte."""

    def __init__(self, head, body):
        self.line, *lines = head.decode("latin-1").split("\r\n")
        self.headers = [tuple(line.split(": ", 1)) for line in lines]
        self.body = body

    def __getitem__(self, name):
        return next((value for key, value in self.headers if key.lower() == name), None)


class Receiver:
    """A server whose answers are written by the test; counts connections and requests."""

    def __init__(self, answer):
        self.answer = answer
        self.port = 0
        self.connections = 0
        self.requests = []
        self.serving = set()

    async def serve(self, reader, writer):
        self.connections += 1
        self.serving.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                size = Request(head, b"")["content-length"]
                self.requests.append(Request(head, await reader.readexactly(int(size or 0))))
                if callable(self.answer):
                    await self.answer(writer)
                    return
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def stop(self):
        for task in self.serving:
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)


@asynccontextmanager
async def receiver(answer=OK, *, serve=None, **options):
    it = Receiver(answer)
    server = await asyncio.start_server(serve or it.serve, "127.0.0.1", 0, **options)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        await it.stop()


async def a_moment():
    """What a receiver lets pass between two bytes."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)


@contextmanager
def memory_below(limit):
    """Fail if the objects alive at any one time inside took more than ``limit`` bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def sender(policy=LOOPBACK, **options):
    return Sender(policy, clock=lambda: NOW, **{"deadline_s": 5.0, "trust": TRUST, **options})


async def attempt(it, *, path="/hook", scheme="http", host="127.0.0.1", by=None, **options):
    message = {"msg_id": "evt_1", "body": BODY, "signing": STANDARD, **options}
    url = f"{scheme}://{host}:{it.port}{path}"
    if by is not None:
        return await by.send(url=url, **message)
    async with sender() as made:
        return await made.send(url=url, **message)


async def answered(answer, *, deadline_s=5.0):
    async with receiver(answer) as it, sender(deadline_s=deadline_s) as by:
        return await attempt(it, by=by)


class TestWhatIsSent:
    async def test_the_signed_bytes_are_the_sent_bytes(self):
        """S056, T34: a receiver verifies the raw body with the secret."""
        async with receiver() as it:
            done = await attempt(it, path="/a/../b?c=%2F&d")
            (request,) = it.requests
        assert (done.outcome, done.status, done.error, done.body) == ("delivered", 200, None, "{}")
        assert done.duration_ms >= 0
        assert request.line == "POST /a/../b?c=%2F&d HTTP/1.1"
        assert request.body == BODY
        assert verify(request.body, request.headers, SECRET, now=NOW).msg_id == "evt_1"

    async def test_the_headers_are_fixed(self):
        """S054: these and no others, so nothing about us leaks."""
        async with receiver() as it:
            await attempt(it)
        headers = dict(it.requests[0].headers)
        assert sorted(name.lower() for name, _ in it.requests[0].headers) == [
            "accept",
            "accept-encoding",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "webhook-id",
            "webhook-signature",
            "webhook-timestamp",
        ]
        assert {name.lower(): value for name, value in headers.items()} | {
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "Signoff-Webhooks/1",
        } == {name.lower(): value for name, value in headers.items()}

    async def test_a_rotation_signs_with_every_secret(self):
        """S058: newest first; either secret verifies."""
        async with receiver() as it:
            signing = Signing(kind="standard", secrets=(SECRET, OLD))
            await attempt(it, signing=signing)
        request = it.requests[0]
        for secret in (SECRET, OLD):
            verify(request.body, request.headers, secret, now=NOW)
        assert request["webhook-signature"].count(" ") == 1

    async def test_the_hex_form_carries_exactly_one_signature(self):
        """The seed's verifier takes one, with the newest secret's text as its key."""
        async with receiver() as it:
            await attempt(it, signing=Signing(kind="hex", secrets=("new text", "old text")))
        request = it.requests[0]
        verify_hex(request.body, request.headers, "new text", now=NOW)
        assert " " not in request["webhook-signature"]

    async def test_a_second_attempt_has_the_same_id_and_a_fresh_signature(self):
        """S057: time and signature are the attempt's, id and body the event's."""
        moments = iter([NOW, NOW, NOW + 300, NOW + 300])
        async with receiver() as it, Sender(LOOPBACK, clock=lambda: next(moments)) as by:
            await attempt(it, by=by)
            await attempt(it, by=by)
        first, second = it.requests
        assert (first["webhook-id"], first.body) == (second["webhook-id"], second.body)
        assert second["webhook-timestamp"] == str(NOW + 300)
        assert first["webhook-signature"] != second["webhook-signature"]

    @pytest.mark.parametrize("secrets", [(), ("not a secret",), (SECRET, "x")])
    async def test_nothing_is_ever_sent_unsigned(self, secrets):
        """S065: without a usable secret the attempt fails before it dials."""
        async with receiver() as it:
            done = await attempt(it, signing=Signing(kind="standard", secrets=secrets))
        assert (done.outcome, done.error, it.connections) == ("failed", "signing", 0)

    def test_secrets_are_not_in_the_repr(self):
        """S271: a logged value gives nothing away."""
        assert "whsec_" not in repr(STANDARD)

    async def test_a_body_of_megabytes_is_sent_whole(self):
        """No limit of the client library stands below our own."""
        body = b'"' + b"x" * 3_000_000 + b'"'
        async with receiver() as it:
            done = await attempt(it, body=body)
        assert done.outcome == "delivered"
        assert it.requests[0].body == body

    async def test_the_environment_changes_nothing(self, monkeypatch, tmp_path):
        """S026: no proxies, no .netrc, no trust or key log taken from variables."""
        keylog = tmp_path / "keys"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent"))
        monkeypatch.setenv("SSLKEYLOGFILE", str(keylog))
        netrc = tmp_path / "netrc"
        netrc.write_text("default login a password b\n")
        monkeypatch.setenv("NETRC", str(netrc))
        async with receiver() as it, sender(trust=system_trust()) as by:
            done = await attempt(it, by=by)
        assert done.outcome == "delivered"
        assert it.requests[0]["authorization"] is None
        assert not keylog.exists()


class TestOutcomes:
    @pytest.mark.parametrize("status", [200, 201, 202, 204, 226])
    async def test_any_2xx_is_delivered(self, status):
        """The body of a 2xx is never looked into."""
        length = b"" if status == 204 else b"Content-Length: 0\r\n"
        done = await answered(b"HTTP/1.1 %d X\r\n%s\r\n" % (status, length))
        assert (done.outcome, done.status, done.error) == ("delivered", status, None)

    @pytest.mark.parametrize("status", [400, 401, 404, 410, 422, 429, 500, 503, 599])
    async def test_any_other_status_failed(self, status):
        """The status and the start of the body are kept; 410 says gone."""
        done = await answered(b"HTTP/1.1 %d X\r\nContent-Length: 3\r\n\r\nwhy" % status)
        assert (done.outcome, done.status, done.error, done.body) == (
            "failed",
            status,
            "status",
            "why",
        )
        assert done.gone == (status == 410)

    @pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
    @pytest.mark.parametrize(
        "location", ["http://127.0.0.1:%d/x", "http://169.254.169.254/", "/own", "file:///etc", ""]
    )
    async def test_redirects_are_not_followed(self, status, location):
        """S022, S023: whatever Location says, one request and a failure."""
        async with receiver() as it:
            target = location % it.port if "%" in location else location
            it.answer = (
                f"HTTP/1.1 {status} X\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
            )
            done = await attempt(it)
        assert (done.outcome, done.status, done.error) == ("failed", status, "redirect")
        assert len(it.requests) == 1

    @pytest.mark.parametrize(
        ("status", "value", "wait"),
        [
            (429, "7", 7.0),
            (503, "999999", 86_400.0),
            (429, "-5", None),
            (429, "Thu, 01 Jan 2026 00:01:40 GMT", 100.0),
            (500, "7", None),
        ],
    )
    async def test_the_wait_asked_for_is_reported(self, status, value, wait):
        """T23: the relay decides what to do with it."""
        answer = f"HTTP/1.1 {status} X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n"
        assert (await answered(answer.encode())).retry_after_s == wait

    async def test_a_cookie_is_never_sent_back(self):
        """S041: two attempts know nothing of each other."""
        answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
        async with receiver(answer) as it, sender() as by:
            await attempt(it, by=by)
            await attempt(it, by=by)
        assert it.requests[1]["cookie"] is None

    async def test_hostile_text_in_the_answer_is_storable(self):
        """S040: cut, without NUL, always text."""
        raw = b"\x1b[31m<script>\x00\xff" + b"x" * 5000
        done = await answered(b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%s" % (len(raw), raw))
        assert done.body.startswith("\x1b[31m<script>\ufffd")
        assert len(done.body) <= 1024


class TestHostileReceivers:
    async def test_a_dripped_head_ends_at_the_deadline(self):
        """S035: one byte at a time never becomes an answer."""

        async def drip(writer):
            for byte in b"HTTP/1.1 200 OK\r\n" + b"x" * 10_000:
                writer.write(bytes([byte]))
                await writer.drain()
                await a_moment()

        done = await answered(drip, deadline_s=FAST_S)
        assert (done.outcome, done.error, done.status) == ("failed", "timeout", None)
        assert FAST_S * 1000 <= done.duration_ms < 4000

    async def test_a_dripped_body_ends_at_the_deadline(self):
        """S035, T14: a good status does not stretch the attempt, nor make it a success."""

        async def drip(writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await a_moment()

        done = await answered(drip, deadline_s=FAST_S)
        assert (done.outcome, done.error, done.status) == ("failed", "timeout", 200)
        assert set(done.body) == {"x"}

    async def test_silence_ends_at_the_deadline(self):
        """S035: a receiver that takes the request and says nothing."""

        async def silent(writer):
            await asyncio.get_running_loop().create_future()

        done = await answered(silent, deadline_s=FAST_S)
        assert (done.outcome, done.error) == ("failed", "timeout")

    async def test_a_body_that_is_not_taken_ends_at_the_deadline(self):
        """S035: writing counts as well."""

        async def full(reader, writer):
            await gone.wait()
            writer.close()

        gone = asyncio.Event()
        async with receiver(serve=full, limit=1024) as it, sender(deadline_s=FAST_S) as by:
            done = await attempt(it, by=by, body=b"x" * 50_000_000)
            gone.set()
        assert (done.outcome, done.error) == ("failed", "timeout")

    async def test_interim_answers_before_the_real_one_are_skipped(self):
        """T58: a few 1xx answers are legal."""
        interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3
        done = await answered(b"HTTP/1.1 100 Continue\r\n\r\n" + interim + OK)
        assert (done.outcome, done.status) == ("delivered", 200)

    async def test_a_flood_of_interim_answers_is_cut(self):
        """S035: it ends at a bound on their number, long before the deadline."""

        async def flood(writer):
            while True:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
                await writer.drain()

        done = await answered(flood, deadline_s=30.0)
        assert (done.outcome, done.error) == ("failed", "protocol")
        assert done.duration_ms < 5000

    async def test_a_switch_of_protocols_is_a_failure(self):
        """A 101 is an answer that nobody asked for."""
        head = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nxx"
        done = await answered(head, deadline_s=FAST_S)
        assert (done.outcome, done.status) == ("failed", 101)

    async def test_a_gigabyte_is_cut_after_kilobytes(self):
        """S036: the connection is dropped at the cap; memory stays flat; 2xx is delivered."""
        written = 0

        async def pour(writer):
            nonlocal written
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            while written < 1_000_000_000:
                writer.write(b"x" * 65_536)
                written += 65_536
                await writer.drain()

        with memory_below(4_000_000):
            done = await answered(pour)
        assert (done.outcome, done.status, len(done.body)) == ("delivered", 200, 1024)
        assert written < 30_000_000

    async def test_an_encoded_answer_is_not_decoded(self):
        """S037: what is read is what was sent, so a bomb stays small."""
        raw = io.BytesIO()
        with gzip.GzipFile(fileobj=raw, mode="wb") as bomb:
            for _ in range(200):
                bomb.write(b"\0" * 1_000_000)
        packed = raw.getvalue()
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        with memory_below(4_000_000):
            done = await answered(head % len(packed) + packed)
        assert done.outcome == "delivered"
        assert done.body.startswith("\x1f\ufffd")

    @pytest.mark.parametrize(
        "head",
        [
            b"X: " + b"y" * 8_000_000,
            b"".join(b"x%d: y\r\n" % number for number in range(100_000)),
            b"X" * 100_000 + b": y",
        ],
    )
    async def test_an_oversized_head_is_refused(self, head):
        """S038: by size of a line and by number of lines."""

        async def pour(writer):
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

        done = await answered(pour)
        assert (done.outcome, done.error) == ("failed", "protocol")

    @pytest.mark.parametrize(
        "answer",
        [
            b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
            b"<html>hello</html>\r\n\r\n",
            b"\x15\x03\x01\x00\x02\x02\x16",
            b"HTTP/1.1 20x OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/9.9.9 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1" + b"0" * 400 + b"\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX\x00Y: 1\r\nContent-Length: 0\r\n\r\n",
        ],
    )
    async def test_what_is_not_http_is_a_protocol_failure(self, answer):
        """S039: one fixed reason for everything that cannot be read as an answer."""

        async def say(writer):
            writer.write(answer)
            await writer.drain()

        done = await answered(say)
        assert (done.outcome, done.error) == ("failed", "protocol")

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        ],
    )
    async def test_an_answer_that_ends_early_is_a_protocol_failure(self, answer):
        """S039: a 2xx counts when its body is complete."""

        async def say(writer):
            writer.write(answer)
            await writer.drain()

        done = await answered(say)
        assert (done.outcome, done.error, done.status) == ("failed", "protocol", 200)

    async def test_headers_that_are_not_utf8_are_survived(self):
        """T58: bytes are bytes."""
        done = await answered(b"HTTP/1.1 200 \xff\r\nX: \xff\xfe\r\nContent-Length: 1\r\n\r\n\xff")
        assert (done.outcome, done.body) == ("delivered", "\ufffd")

    async def test_a_hang_up_is_a_lost_connection(self):
        """A fresh connection that closes without a word is not tried again in this attempt."""

        async def close(writer):
            pass

        async with receiver(close) as it:
            done = await attempt(it)
        assert (done.outcome, done.error, done.resent) == ("failed", "connection_lost", False)
        assert len(it.requests) == 1

    async def test_nobody_listening_is_a_connect_failure(self):
        """A closed port."""
        async with receiver() as it:
            pass
        done = await attempt(it)
        assert (done.outcome, done.error) == ("failed", "connect")


class TestConnections:
    async def test_connections_are_kept_and_shared(self):
        """T25: hundreds of deliveries to one receiver use as many connections as ran at once."""
        async with receiver() as it, sender() as by:

            async def some():
                for _ in range(25):
                    assert (await attempt(it, by=by)).outcome == "delivered"

            await asyncio.gather(*(some() for _ in range(8)))
        assert len(it.requests) == 200
        assert it.connections <= 8

    async def test_connections_per_host_are_bounded(self):
        """T19: what is over the bound waits, inside its own deadline."""
        async with receiver() as it, sender(connections_per_host=2) as by:
            done = await asyncio.gather(*(attempt(it, by=by) for _ in range(20)))
        assert {each.outcome for each in done} == {"delivered"}
        assert it.connections <= 2

    async def test_a_reused_connection_that_was_closed_is_replaced_once(self):
        """The receiver's idle time-out is not a failure, and the record says what happened."""

        async def once(reader, writer):
            it.connections += 1
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(BODY))
            writer.write(OK)
            if it.connections == 1:
                # Reads the second request, then closes without an answer.
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(BODY))
            writer.close()

        async with receiver(serve=once) as it, sender() as by:
            first = await attempt(it, by=by)
            second = await attempt(it, by=by)
        assert (first.outcome, first.resent) == ("delivered", False)
        assert (second.outcome, second.resent) == ("delivered", True)
        assert it.connections == 2


class Scripted:
    """A resolver whose answers change with every question; the last round stays."""

    def __init__(self, *rounds):
        self.rounds = rounds
        self.asked = []

    async def __call__(self, name):
        self.asked.append(name)
        answers = self.rounds[min(len(self.asked), len(self.rounds)) - 1]
        if isinstance(answers, Exception):
            raise answers
        return [ipaddress.ip_address(answer) for answer in answers]


ALLOWED_V4 = Policy.load("127.0.0.1")


class TestAddresses:
    async def test_an_allowed_name_is_delivered_under_its_own_name(self):
        """S031: the address is dialled, the name is sent."""
        async with receiver() as it, sender(ALLOWED_V4, lookup=Scripted(["127.0.0.1"])) as by:
            done = await attempt(it, by=by, host="hooks.example.com")
        assert done.outcome == "delivered"
        assert it.requests[0]["host"] == f"hooks.example.com:{it.port}"

    @pytest.mark.parametrize(
        "answers",
        [
            ["127.0.0.2"],
            ["10.0.0.1"],
            ["169.254.169.254"],
            ["100.64.0.1"],
            ["0.0.0.0"],
            ["::1"],
            ["::ffff:127.0.0.1"],
            ["64:ff9b::7f00:1"],
            ["fd00:ec2::254"],
            ["8.8.8.8"],
            ["127.0.0.1", "127.0.0.2"],
            ["127.0.0.2", "127.0.0.1"],
            ["127.0.0.1"] * 253 + ["127.0.0.2"],
        ],
    )
    async def test_a_forbidden_answer_is_never_dialled(self, answers):
        """S015, S018, S019, T52: one forbidden address among the answers refuses the attempt."""
        async with receiver() as it, sender(ALLOWED_V4, lookup=Scripted(answers)) as by:
            done = await attempt(it, by=by, host="hooks.example.com")
        assert (done.outcome, done.error, it.connections) == ("failed", "blocked_address", 0)
        assert (done.body, done.status) == ("", None)

    async def test_a_rebound_name_is_never_dialled(self):
        """S016, S017: every new connection asks, and judges the answer it dials."""

        async def close(writer):
            writer.write(b"HTTP/1.1 500 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

        look_up = Scripted(["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"])
        async with (
            receiver(close) as it,
            receiver() as inside,
            sender(ALLOWED_V4, lookup=look_up) as by,
        ):
            errors = [(await attempt(it, by=by, host="a.example.com")).error for _ in range(4)]
        assert errors == ["status", "status", "blocked_address", "blocked_address"]
        assert (it.connections, inside.connections, len(look_up.asked)) == (2, 0, 4)

    async def test_a_kept_connection_stays_with_the_address_that_was_judged(self):
        """S029: a pool cannot be led elsewhere, since reuse neither asks nor dials."""
        look_up = Scripted(["127.0.0.1"], ["127.0.0.2"])
        async with receiver() as it, sender(ALLOWED_V4, lookup=look_up) as by:
            for path in ("/tenant-a", "/tenant-b"):
                done = await attempt(it, by=by, host="shared.example.com", path=path)
                assert done.outcome == "delivered"
        assert (it.connections, len(look_up.asked)) == (1, 1)

    @pytest.mark.parametrize("host", ["127.0.0.2", "[::1]", "10.0.0.1", "[::ffff:127.0.0.1]"])
    async def test_a_literal_that_is_not_allowed_is_refused(self, host):
        """S002: the URL is checked again at every attempt, whatever was stored."""
        async with receiver() as it, sender(ALLOWED_V4) as by:
            done = await attempt(it, by=by, host=host)
        assert (done.outcome, done.error) == ("failed", "blocked_address")

    @pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "127.0.0.1.", "u@127.0.0.1"])
    async def test_odd_spellings_are_refused(self, host):
        """S004: a stored URL that today's parser refuses is not sent."""
        async with receiver() as it:
            done = await attempt(it, host=host)
        assert (done.outcome, done.error, it.connections) == ("failed", "invalid_url", 0)

    async def test_the_dial_itself_is_guarded(self, monkeypatch):
        """Should a URL slip through, the socket to a forbidden address is still not made."""
        monkeypatch.setattr("webhooks.guard._check_literal", lambda *_: None)
        monkeypatch.setattr("webhooks.resolve.check_addresses", lambda *_, **__: None)
        look_up = Scripted(["127.0.0.2", "127.0.0.3"])
        async with receiver() as it, sender(ALLOWED_V4, lookup=look_up) as by:
            literal = await attempt(it, by=by, host="127.0.0.2")
            name = await attempt(it, by=by, host="a.example.com")
        assert (literal.error, name.error) == ("blocked_address", "blocked_address")
        assert it.connections == 0

    @pytest.mark.parametrize("failure", [OSError("no such host"), []])
    async def test_a_name_without_an_address_is_a_dns_failure(self, failure):
        """S021, T8: tried again later, never a crash."""
        async with receiver() as it, sender(lookup=Scripted(failure, ["127.0.0.1"])) as by:
            first = await attempt(it, by=by, host="a.example.com")
            second = await attempt(it, by=by, host="a.example.com")
        assert (first.error, second.outcome) == ("dns", "delivered")

    async def test_a_resolver_that_hangs_ends_at_the_deadline(self):
        """The deadline begins before the first question."""

        async def hang(name):
            await asyncio.get_running_loop().create_future()

        async with receiver() as it, sender(lookup=hang, deadline_s=FAST_S) as by:
            done = await attempt(it, by=by, host="a.example.com")
        assert (done.outcome, done.error) == ("failed", "timeout")

    async def test_a_fault_of_ours_fails_the_attempt_and_is_logged(self, caplog):
        """The relay goes on; the log has what happened, without the secret."""
        async with receiver() as it, sender(lookup=Scripted(RuntimeError("bug"))) as by:
            done = await attempt(it, by=by, host="a.example.com")
        assert (done.outcome, done.error) == ("failed", "internal")
        assert "attempt_crashed event=" in caplog.text
        assert SECRET not in caplog.text

    async def test_many_answers_cause_few_connects(self):
        """S020: of hundreds of addresses a handful is tried."""
        async with receiver() as it:
            pass
        policy = Policy.load("127.0.0.0/8")
        answers = [f"127.0.1.{number}" for number in range(1, 255)]
        async with sender(policy, lookup=Scripted(answers)) as by:
            done = await attempt(it, by=by, host="a.example.com")
        assert (done.outcome, done.error) == ("failed", "connect")

    async def test_localhost_is_loopback_without_asking(self):
        """Where it is allowed at all, and only the families that are."""
        look_up = Scripted(["8.8.8.8"])
        async with receiver() as it, sender(ALLOWED_V4, lookup=look_up) as by:
            done = await attempt(it, by=by, host="localhost")
        assert (done.outcome, look_up.asked) == ("delivered", [])

    async def test_plain_http_leads_to_allowed_networks_only(self):
        """S032: a public answer for an http name is refused at the dial."""
        async with receiver() as it, sender(lookup=Scripted(["8.8.8.8"])) as by:
            done = await attempt(it, by=by, host="a.example.com")
        assert (done.outcome, done.error) == ("failed", "blocked_address")


def certificate(folder, name, *, days=(-1, 1)):
    """A self-signed certificate for one name, as files that a TLS server can load."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today + dt.timedelta(days=days[0]))
        .not_valid_after(today + dt.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(pem))
    files[1].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def served(files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


class TestTls:
    async def delivered(self, files, *, trust=TRUST, host="hooks.example.com"):
        look_up = Scripted(["127.0.0.1"])
        async with (
            receiver(ssl=served(files)) as it,
            sender(ALLOWED_V4, lookup=look_up, trust=trust) as by,
        ):
            return await attempt(it, by=by, scheme="https", host=host), it

    async def test_a_self_signed_certificate_is_refused(self, tmp_path):
        """S030: and there is no fallback; not one request arrives."""
        done, it = await self.delivered(certificate(tmp_path, "hooks.example.com"))
        assert (done.outcome, done.error, it.requests) == ("failed", "tls", [])

    async def test_a_trusted_certificate_for_the_name_is_accepted(self, tmp_path):
        """S031: the certificate is checked for the name although an address was dialled."""
        files = certificate(tmp_path, "hooks.example.com")
        trust = ssl.create_default_context(cafile=files[0])
        done, _ = await self.delivered(files, trust=trust)
        assert done.outcome == "delivered"

    async def test_a_certificate_for_another_name_is_refused(self, tmp_path):
        """S030: trusted issuer, wrong name."""
        files = certificate(tmp_path, "other.example.com")
        trust = ssl.create_default_context(cafile=files[0])
        done, it = await self.delivered(files, trust=trust)
        assert (done.outcome, done.error, it.requests) == ("failed", "tls", [])

    async def test_an_expired_certificate_is_refused(self, tmp_path):
        """S030: trusted issuer, right name, past its time."""
        files = certificate(tmp_path, "hooks.example.com", days=(-3, -1))
        trust = ssl.create_default_context(cafile=files[0])
        done, _ = await self.delivered(files, trust=trust)
        assert (done.outcome, done.error) == ("failed", "tls")

    async def test_a_server_without_tls_is_a_tls_failure(self):
        """https is never downgraded."""

        async def plain(reader, writer):
            await reader.read(1)
            writer.write(OK)
            writer.close()

        async with receiver(serve=plain) as it:
            done = await attempt(it, scheme="https")
        assert (done.outcome, done.error, it.requests) == ("failed", "tls", [])

    async def test_trust_comes_from_the_system_only(self, tmp_path, monkeypatch):
        """S026: SSL_CERT_FILE does not add an authority."""
        files = certificate(tmp_path, "hooks.example.com")
        monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(files[0]))
        done, _ = await self.delivered(files, trust=system_trust())
        assert (done.outcome, done.error) == ("failed", "tls")
