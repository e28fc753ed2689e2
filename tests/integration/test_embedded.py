"""The embedded store on its real server: kept through kill -9, private, one supervisor a folder."""

import json
import os
import re
import signal
import socket
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest
import redis

from signoff.domain.error import SignoffError
from signoff.supervise import embedded
from signoff.supervise.embedded import EmbeddedStore, embedded_store, find_binary, socket_path
from signoff.supervise.folder import DataFolder
from signoff.supervise.port import claim_port, reachable_url
from signoff.supervise.process import Child

DEADLINE_S = 20.0


def eventually(holds):
    pause = threading.Event()
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "condition did not come true in time"
        pause.wait(0.01)


@pytest.fixture
def folder(tmp_path):
    opened = DataFolder(tmp_path / "data")
    yield opened
    opened.close()


class Running:
    """A store started the way the supervisor does it."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.lines: list[bytes] = []
        self.child = Child(store.program(), write=self.lines.append)
        self.start()

    def start(self):
        self.child.start(time.monotonic())
        eventually(self.store.ping)

    def ended(self):
        self.child.pump()
        self.child.poll(time.monotonic())
        return self.child.pid is None

    def kill(self):
        self.child.kill()
        eventually(self.ended)

    def client(self):
        return redis.Redis.from_url(self.store.url, decode_responses=True)


@pytest.fixture
def running(folder):
    started = Running(embedded_store(folder, search=os.defpath))
    yield started
    if started.child.pid is not None:
        started.kill()


def test_acknowledged_writes_survive_kill_9(running):
    """What the store confirmed before a SIGKILL is there after the next start."""
    with running.client() as client:
        for number in range(200):
            assert client.set(f"key:{number}", number)
    running.kill()
    running.store.clear_remains()
    running.start()
    with running.client() as client:
        assert [client.get(f"key:{number}") for number in range(200)] == [
            str(number) for number in range(200)
        ]


def test_the_store_is_configured_to_keep_and_to_be_private(running, folder):
    """Append-only, no eviction, no TCP port; folder and socket belong to the owner only."""
    with running.client() as client:
        config = client.config_get("*")
    assert config["port"] == "0"
    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "no"  # written before it is answered; see embedded.py
    assert config["save"] == ""
    assert config["maxmemory-policy"] == "noeviction"
    assert stat.S_IMODE(running.store.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    kept = [path for path in folder.store.rglob("*") if path.is_file()]
    assert kept
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)


def test_a_signal_to_the_group_does_not_end_the_store(running):
    """SIGTERM and SIGINT stay without effect; the request over the socket ends it cleanly."""
    os.kill(running.child.pid, signal.SIGTERM)
    os.kill(running.child.pid, signal.SIGINT)
    status = Path(f"/proc/{running.child.pid}/status").read_text()
    found = re.search(r"ShdPnd:\s*(\w+)", status)
    assert found is not None
    pending = int(found[1], 16)
    assert pending & 1 << (signal.SIGTERM - 1)
    assert pending & 1 << (signal.SIGINT - 1)
    assert running.store.ping()
    running.child.ask()
    eventually(running.ended)
    assert running.child.last_code == 0


def test_the_socket_of_a_dead_store_is_removed(running):
    """A socket file left by kill -9 does not outlive the next start's clean-up."""
    running.kill()
    assert running.store.socket.exists()
    running.store.clear_remains()
    assert not running.store.socket.exists()
    running.store.clear_remains()


def test_a_store_that_outlived_its_supervisor_is_ended(running):
    """A live server on our socket is shut down before a new one takes the same files."""
    ending = threading.Thread(target=running.store.clear_remains)
    ending.start()
    eventually(running.ended)
    ending.join(DEADLINE_S)
    assert running.child.last_code == 0
    assert not running.store.socket.exists()


def test_a_foreign_file_in_the_sockets_place_is_kept(folder):
    """Something that is not a socket is never removed: the start is refused instead."""
    store = embedded_store(folder, search=os.defpath)
    store.socket.write_text("mine")
    with pytest.raises(SignoffError, match="is not a socket"):
        store.clear_remains()
    assert store.socket.read_text() == "mine"


def test_a_second_start_on_the_folder_is_refused(folder):
    """While one supervisor lives another is told so, with the process that holds the folder."""
    with pytest.raises(SignoffError, match=rf"in use .*process {os.getpid()}") as caught:
        DataFolder(folder.path)
    assert caught.value.code == "cannot_start"


def test_a_lock_file_without_a_holder_is_no_obstacle(tmp_path):
    """The lock file of a killed supervisor, and foreign files, do not prevent a start."""
    (tmp_path / "signoff.lock").write_text("99999\n")
    (tmp_path / "notes.txt").write_text("foreign")
    DataFolder(tmp_path).close()
    DataFolder(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "foreign"


def test_an_unusable_folder_is_named(tmp_path):
    """A file where a folder should be gives one clear error, and leaves no lock behind."""
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(SignoffError, match="cannot be used as data folder"):
        DataFolder(taken)
    (tmp_path / "store").write_text("")
    for _ in range(2):
        with pytest.raises(SignoffError, match="in the way of the store"):
            DataFolder(tmp_path)


def test_generated_secrets_are_kept(folder):
    """The first start makes a key that only the owner can read; later starts return it."""
    first = folder.secret_keys(())
    assert len(first) == 1
    path = folder.path / "secrets.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert folder.secret_keys(()) == first
    assert folder.secret_keys(("given",)) == ("given", *first)
    assert folder.secret_keys(first) == first


def test_given_secrets_make_none(folder):
    """An operator's own keys are used alone while the folder has none."""
    assert folder.secret_keys(("given",)) == ("given",)
    assert not (folder.path / "secrets.json").exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"secret_keys": []}', '{"secret_keys": [1]}'])
def test_damaged_secrets_are_never_replaced(folder, content):
    """A file that cannot be read stops the start: a new key would lose what the old encrypts."""
    path = folder.path / "secrets.json"
    path.write_text(content)
    with pytest.raises(SignoffError, match=re.escape(str(path))):
        folder.secret_keys(())
    assert path.read_text() == content


def test_a_crash_while_secrets_were_written_is_no_obstacle(folder):
    """A half-written draft is thrown away."""
    (folder.path / ".secrets.json.new").write_text('{"secr')
    made = folder.secret_keys(())
    assert json.loads((folder.path / "secrets.json").read_text()) == {"secret_keys": list(made)}


def test_a_long_path_gets_a_short_private_socket(tmp_path):
    """Where the socket's path would be too long it stands in a folder only we can enter."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    opened = DataFolder(deep)
    store = embedded_store(opened, search=os.defpath)
    running = Running(store)
    try:
        assert store.socket.parent != deep
        assert len(os.fsencode(store.socket)) <= 100
        assert stat.S_IMODE(store.socket.parent.stat().st_mode) == 0o700
        assert embedded_store(opened, search=os.defpath).socket == store.socket
        with running.client() as client:
            assert client.ping()
    finally:
        running.kill()
        store.clear_remains()
        store.socket.parent.rmdir()
        opened.close()


@pytest.fixture
def short():
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        yield Path(made)


def test_a_short_folder_of_others_is_refused(tmp_path, short):
    """A prepared folder that others can enter, or a link, is not used for the socket."""
    deep = tmp_path / ("d" * 100)
    private = socket_path(deep, temporary=short).parent
    private.chmod(0o755)
    with pytest.raises(SignoffError, match="not a private folder"):
        socket_path(deep, temporary=short)
    private.rmdir()
    target = short / "target"
    target.mkdir(mode=0o700)
    private.symlink_to(target)
    with pytest.raises(SignoffError, match="not a private folder"):
        socket_path(deep, temporary=short)


def executable(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_without_the_bundled_server_the_path_is_searched(tmp_path, monkeypatch):
    """The first server on the PATH that is new enough is taken, an old one is named."""
    monkeypatch.setattr(embedded, "_bundled", lambda: None)
    with pytest.raises(SignoffError, match=r"signoff\[server\]"):
        find_binary(str(tmp_path))
    old = executable(tmp_path / "valkey-server", "echo 'Redis server v=5.0.7 sha=0 bits=64'")
    with pytest.raises(SignoffError, match=rf"{old} is 5\.0"):
        find_binary(str(tmp_path))
    executable(old, "exit 1")
    new = executable(tmp_path / "redis-server", "echo 'Redis server v=6.2.14 sha=0 bits=64'")
    assert find_binary(str(tmp_path)) == new


def test_a_taken_port_is_refused_and_zero_finds_one():
    """A listener on the port is an error with its number; port 0 gives a free one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SignoffError, match=f"port {port} of 127.0.0.1 is in use"):
            claim_port("127.0.0.1", port)
    assert claim_port("127.0.0.1", port) == port
    assert claim_port("127.0.0.1", 0) > 0
    with pytest.raises(SignoffError, match="cannot listen on"):
        claim_port("host.invalid", 0)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_the_shown_url_can_be_reached_from_here(host, url):
    """Listening on every address is shown as loopback, and IPv6 stands in brackets."""
    assert reachable_url(host, 80) == url
