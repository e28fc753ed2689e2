"""The supervisor with real processes: restarts, orderly ends, and nothing left after kill -9."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from signoff.supervise.process import MAX_LINE_BYTES, Lines, restart_delay

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0

# Children append "<name> <pid>" to the file `starts` when they can take signals.
DRIVER = """
import os, sys, textwrap
from pathlib import Path
from signoff.supervise.process import Program
from signoff.supervise.supervisor import Supervisor

place = Path(sys.argv[1])

def shell(name, script, **options):
    text = f'cd {place}; ' + script
    return Program(name=name, argv=("/bin/sh", "-c", text), environ=dict(os.environ), **options)

def started(name):
    return f'echo "{name} $$" >> starts'

with Supervisor() as supervisor:
%s
    print("up", flush=True)
    supervisor.run()
"""


def program(body):
    return DRIVER % textwrap.indent(textwrap.dedent(body), "    ")


def eventually(holds, within=DEADLINE_S):
    pause = threading.Event()
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "condition did not come true in time"
        pause.wait(0.01)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Driven:
    """A supervisor in a process group of its own."""

    def __init__(self, place: Path, body: str) -> None:
        self.place = place
        self.log = place / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program(body), str(place)],
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.stdout = self.process.stdout

    def up(self, *names):
        assert self.stdout.readline() == b"up\n"
        eventually(lambda: all(self.pids(name) for name in names))

    def lines(self, file):
        path = self.place / file
        return path.read_text().splitlines() if path.exists() else []

    def pids(self, name):
        return [int(line.split()[1]) for line in self.lines("starts") if line.split()[0] == name]

    def everyone(self):
        return [int(line.split()[1]) for line in self.lines("starts")]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.stdout.close()
        for pid in self.everyone():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def drive(tmp_path):
    driven = []

    def start(body):
        driven.append(Driven(tmp_path, body))
        return driven[-1]

    yield start
    for one in driven:
        one.close()


PAIR = """
supervisor.start(shell("first", started("first") + "; exec sleep 600"), stage=1)
supervisor.start(shell("second", started("second") + "; exec sleep 600"), stage=2)
"""

# Each child writes its name when it is asked to end; the last one is shielded from the group.
ORDERED = '''
def polite(name, stage, **options):
    trap = f'trap "echo {name} >> ends; exit 0" TERM; '
    supervisor.start(
        shell(name, trap + started(name) + "; while :; do sleep 0.02; done", **options),
        stage=stage,
    )

def ask():
    (place / "asked").touch()

polite("first", 1)
polite("second", 2)
# Not a shell: dash clears the mask of blocked signals that it was started with.
last = """
import os, time
with open('starts', 'a') as starts:
    print('last', os.getpid(), file=starts)
while not os.path.exists('asked'):
    time.sleep(0.02)
with open('ends', 'a') as ends:
    print('last', file=ends)
"""
last = textwrap.dedent(last)
supervisor.start(shell("last", f'exec {sys.executable} -SE -c "{last}"', ask=ask), stage=3)
'''


def test_a_killed_child_is_started_again(drive):
    """A child that dies by kill -9 comes back, in the supervisor's process group."""
    driven = drive(PAIR)
    driven.up("first", "second")
    os.kill(driven.pids("first")[0], signal.SIGKILL)
    eventually(lambda: len(driven.pids("first")) == 2)
    assert len(driven.pids("second")) == 1
    for pid in (driven.pids("first")[1], driven.pids("second")[0]):
        assert os.getpgid(pid) == driven.process.pid
    eventually(lambda: "first ended (SIGKILL)" in driven.log.read_text())


def test_a_child_that_cannot_run_is_retried_with_growing_delays(drive):
    """Quick exits in a row are retried ever more slowly, and what they said is in the log."""
    driven = drive(
        """
        supervisor.start(shell("broken", started("broken") + "; echo no luck >&2; exit 3"), stage=1)
        supervisor.start(Program(name="absent", argv=("/no/such",), environ={}), stage=1)
        """
    )
    begun = time.monotonic()
    driven.up("broken")
    eventually(lambda: len(driven.pids("broken")) == 4)
    assert time.monotonic() - begun >= 0.1 + 0.2 + 0.4
    log = driven.log.read_text()
    assert "[broken] no luck" in log
    assert "[signoff] broken ended (exit code 3)" in log
    assert "[absent] cannot be started" in log


def test_restart_delays_double_up_to_the_longest():
    """From 0.1 s to 5 s, however often it failed."""
    delays = [restart_delay(exits) for exits in range(8)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert restart_delay(10**9) == 5.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_parent_ends_the_stages_in_order(drive, number):
    """Each stage is asked when the one before has ended; the parent leaves with 0."""
    driven = drive(ORDERED)
    driven.up("first", "second", "last")
    driven.process.send_signal(number)
    assert driven.process.wait(DEADLINE_S) == 0
    assert driven.lines("ends") == ["first", "second", "last"]
    assert len(driven.everyone()) == 3
    assert not any(map(alive, driven.everyone()))


def test_a_signal_to_the_group_ends_all_without_respawns(drive):
    """All children get it at once, yet the shielded one ends last and none is started again."""
    driven = drive(ORDERED)
    driven.up("first", "second", "last")
    os.killpg(driven.process.pid, signal.SIGTERM)
    assert driven.process.wait(DEADLINE_S) == 0
    # The supervisor asks as well, so a child may be told twice before it has left.
    *told, last = driven.lines("ends")
    assert set(told) == {"first", "second"}
    assert last == "last"
    assert len(driven.everyone()) == 3
    assert "is started again" not in driven.log.read_text()
    assert not any(map(alive, driven.everyone()))


def test_a_child_that_will_not_end_is_killed_in_time(drive):
    """SIGTERM is ignored by the child and the store's request too: both are gone after grace."""
    driven = drive(
        """
        deaf = "trap '' TERM INT; "
        supervisor.start(shell("deaf", deaf + started("deaf") + "; sleep 600; sleep 600",
                               grace_s=0.5), stage=1)
        supervisor.start(shell("mute", started("mute") + "; exec sleep 600", grace_s=0.5,
                               ask=lambda: None), stage=2)
        """
    )
    driven.up("deaf", "mute")
    begun = time.monotonic()
    driven.process.terminate()
    assert driven.process.wait(DEADLINE_S) == 0
    assert 1.0 <= time.monotonic() - begun < 5.0
    assert not any(map(alive, driven.everyone()))


def test_what_a_child_left_behind_is_killed_at_the_end(drive):
    """A command that outlives the child that started it does not outlive the supervisor."""
    driven = drive(
        """
        orphan = "sh -c 'trap \\"\\" TERM; echo orphan $$ >> starts; sleep 600; :' & "
        supervisor.start(shell("parent", orphan + started("parent") + "; exec sleep 600"), stage=1)
        """
    )
    driven.up("parent", "orphan")
    driven.process.terminate()
    assert driven.process.wait(DEADLINE_S) == 0
    assert not any(map(alive, driven.everyone()))


def test_children_of_before_are_left_alone(drive, tmp_path):
    """A process that the supervisor's program had started earlier, by a shell's exec, lives on."""
    driven = drive(PAIR)
    driven.close()
    script = f'sleep 600 & echo "foreign $!" >> {tmp_path}/starts; exec "$@"'
    command = ["/bin/sh", "-c", script, "sh", sys.executable, "-c", program(PAIR), str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
        assert alive(driven.pids("foreign")[0])


def test_kill_9_of_the_parent_takes_the_children_along(drive):
    """The kernel ends the children, the shielded one too, when the supervisor is killed."""
    driven = drive(ORDERED)
    driven.up("first", "second", "last")
    driven.process.kill()
    driven.process.wait()
    eventually(lambda: not any(map(alive, driven.everyone())))
    assert driven.lines("ends") == []


def test_kill_9_of_the_group_ends_all(drive):
    """Every child stands in the supervisor's process group."""
    driven = drive(ORDERED)
    driven.up("first", "second", "last")
    os.killpg(driven.process.pid, signal.SIGKILL)
    driven.process.wait()
    eventually(lambda: not any(map(alive, driven.everyone())))


def test_a_log_that_nobody_reads_does_not_stop_the_children(tmp_path):
    """A child goes on writing though the supervisor's own stderr is a full pipe."""
    body = """
    noise = "for i in $(seq 40); do head -c 100000 /dev/zero | tr '\\\\0' x; echo; done"
    supervisor.start(shell("noisy", noise + "; touch finished; exec sleep 600"), stage=1)
    """
    with subprocess.Popen(
        [sys.executable, "-c", program(body), str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        eventually((tmp_path / "finished").exists)
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(b"[noisy] xxx")
        assert len(line) < 4096


def test_lines_are_bounded_and_kept_whole():
    """Lines come out as they went in, whatever the chunks; an overlong one is cut and marked."""
    lines = Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o\r\n\nthree") == [b"two", b""]
    assert lines.finish() == [b"three"]
    assert lines.finish() == []
    long = b"x" * (MAX_LINE_BYTES + 1)
    assert lines.feed(long) == [b"x" * MAX_LINE_BYTES + b" ... [cut]"]
    assert lines.feed(long) == []
    assert lines.feed(b"tail\nnext\n") == [b"next"]
    assert lines.feed(long + b"\nafter\n") == [b"x" * MAX_LINE_BYTES + b" ... [cut]", b"after"]


def signoff(*arguments, **environ):
    return subprocess.run(
        [sys.executable, "-m", "signoff.cli", *arguments],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_dev_refuses_what_cannot_work(tmp_path):
    """Short or doubled keys, a taken port and a bad setting end with one line and exit code 2."""
    dev = ("dev", "--data", str(tmp_path), "--key", "key-number-one")
    for arguments, environ, told in [
        (("--key", "short"), {}, "--key number 2 has fewer than 8 characters"),
        (("--key", "key-number-one"), {}, "the same --key is given twice"),
        (("--host", "host.invalid"), {}, "cannot listen on host.invalid"),
        ((), {"SIGNOFF_LEASE_S": "soon"}, "SIGNOFF_LEASE_S must be a number"),
        ((), {"SIGNOFF_SECRET_KEYS": "x"}, "SIGNOFF_SECRET_KEYS key 1 is not a Fernet key"),
    ]:
        ended = signoff(*dev, *arguments, **environ)
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert ended.stderr.startswith("signoff: ")
        assert told in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_an_unknown_command_shows_what_there_is():
    """The command line names its commands, and the usage goes to stderr with exit code 2."""
    assert "relay" in signoff("--help").stdout
    ended = signoff("fly")
    assert ended.returncode == 2
    assert "invalid choice" in ended.stderr
