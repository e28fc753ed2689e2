"""The demo tools: the contract that black-box tests rely on."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples import demo_tools
from signoff.toolbox import Toolbox
from signoff.tooldef import CallContext, InvalidToolInputError, use_call

pytestmark = pytest.mark.anyio

TOOLS = Toolbox({"examples.demo_tools": demo_tools})


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    """A ledger and a scratch folder of this test's own."""
    monkeypatch.setenv("SIGNOFF_DEMO_LEDGER", str(tmp_path / "ledger.jsonl"))
    monkeypatch.setenv("SIGNOFF_DEMO_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "ledger.jsonl"


@contextmanager
def _call(tool: str, run_id: int = 1, call_id: str = "call_0_0") -> Iterator[None]:
    context = CallContext(
        run_id=run_id,
        tool_use_id=call_id,
        tool=tool,
        digest="d" * 64,
        idempotency_key=f"{run_id}:{call_id}",
        attempt=1,
    )
    with use_call(context):
        yield


async def _run(tool: str, *, run_id: int = 1, **tool_input: Any) -> str:
    subject = TOOLS[tool]
    with _call(tool, run_id):
        return await subject.run(subject.check(tool_input))


def _lines(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def _folder(tmp_path: Path, run_id: int = 1) -> Path:
    return tmp_path / "scratch" / f"run-{run_id}"


def test_the_tools_are_those_of_the_contract():
    """Names, parameters, and what each declares."""
    assert {
        name: (list(found.input_schema["properties"]), found.read_only, found.idempotent)
        for name, found in TOOLS.items()
    } == {
        "search_docs": (["query"], True, False),
        "send_email": (["to", "subject", "body"], False, False),
        "set_flag": (["key", "value"], False, True),
        "slow": (["seconds", "tag"], False, False),
        "fail": (["message"], False, False),
        "Bash": (["command"], False, False),
        "Write": (["path", "content"], False, False),
        "Read": (["path"], True, False),
    }
    assert {name: found.patterns for name, found in TOOLS.items() if found.patterns} == {
        "Bash": "shell",
        "Write": "path",
        "Read": "path",
    }
    for found in TOOLS.values():
        assert found.description
        assert found.input_schema["required"] == list(found.input_schema["properties"])


async def test_each_call_leaves_a_start_and_an_end(ledger):
    """The lines carry what ties them to the call."""
    assert "Approvals" in await _run("search_docs", query="who needs a person?")
    start, end = _lines(ledger)
    assert isinstance(start.pop("ts"), float)
    assert end.pop("ts") > 0
    common = {
        "run_id": 1,
        "tool_use_id": "call_0_0",
        "tool": "search_docs",
        "digest": "d" * 64,
        "idempotency_key": "1:call_0_0",
    }
    assert start == {**common, "phase": "start"}
    assert end == {**common, "phase": "end"}


async def test_a_failed_call_has_an_end_too(ledger):
    """fail raises its message, and the ledger shows both lines."""
    with pytest.raises(RuntimeError, match="boom"):
        await _run("fail", message="boom")
    assert [line["phase"] for line in _lines(ledger)] == ["start", "end"]


async def test_a_cancelled_call_has_an_end_too(ledger):
    """A sleep of years can be cancelled; the start is written before it begins."""
    with _call("slow"):
        task = asyncio.create_task(TOOLS["slow"].run({"seconds": 1e9, "tag": "t"}))
    await asyncio.sleep(0)  # the task's first step ends in its sleep
    assert [line["phase"] for line in _lines(ledger)] == ["start"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line["phase"] for line in _lines(ledger)] == ["start", "end"]


async def test_lines_of_concurrent_calls_do_not_mix(ledger):
    """A hundred calls at once leave two hundred whole lines."""
    await asyncio.gather(*(_run("slow", run_id=n, seconds=0, tag="x" * 500) for n in range(100)))
    assert len(_lines(ledger)) == 200


async def test_without_a_ledger_nothing_is_written(ledger, monkeypatch):
    """The ledger is optional."""
    monkeypatch.delenv("SIGNOFF_DEMO_LEDGER")
    assert await _run("send_email", to="a@b.c", subject="s", body="b")
    assert not ledger.exists()


@pytest.mark.parametrize("value", ["on", True, 3, 0.5, None], ids=repr)
async def test_flags_keep_their_type(value, tmp_path):
    """A flag is any JSON scalar, and setting it twice is setting it once."""
    first = await _run("set_flag", key="beta", value=value)
    assert await _run("set_flag", key="beta", value=value) == first
    assert first == f"Flag beta is {json.dumps(value)}."
    assert json.loads((_folder(tmp_path) / ".flags.json").read_text()) == {"beta": value}


@pytest.mark.parametrize(
    ("tool", "tool_input", "field"),
    [
        ("send_email", {"to": 1, "subject": "s", "body": "b"}, "to"),
        ("send_email", {"to": "a", "subject": "s"}, "body"),
        ("send_email", {"to": "a", "subject": "s", "body": "b", "cc": "x"}, "cc"),
        ("slow", {"seconds": "1", "tag": "t"}, "seconds"),
        ("Bash", {"command": ["ls"]}, "command"),
        ("set_flag", {"key": "a", "value": {}}, "value"),
    ],
)
def test_input_is_strict(tool, tool_input, field):
    """No demo tool takes a wrong type or an unknown field."""
    with pytest.raises(InvalidToolInputError) as caught:
        TOOLS[tool].check(tool_input)
    assert caught.value.field == field


async def test_slow_takes_whole_and_broken_seconds():
    """And refuses to travel back."""
    assert await _run("slow", seconds=0, tag="a") == "a: done after 0 s."
    assert await _run("slow", seconds=0.001, tag="b") == "b: done after 0.001 s."
    for seconds in (-1, -0.5):
        with pytest.raises(ValueError, match="negative"):
            await _run("slow", seconds=seconds, tag="c")


async def test_bash_runs_in_the_runs_folder(tmp_path):
    """Output and errors come back, a failure with its exit code, pipes and quotes work."""
    assert await _run("Bash", command="pwd") == f"{_folder(tmp_path)}\n"
    assert await _run("Bash", command="echo 'a b' | tr a-z A-Z; echo \"$0\" >/dev/null") == "A B\n"
    assert await _run("Bash", command="echo out; echo err >&2; exit 3") == (
        "out\nerr\n\n[exit code 3]"
    )
    assert await _run("Bash", command="false") == "[exit code 1]"
    assert await _run("Bash", command="true") == ""
    await _run("Bash", command="echo kept > file")
    assert await _run("Bash", command="cat file") == "kept\n"
    assert "[exit code 1]" in await _run("Bash", run_id=2, command="cat file")


async def test_bash_knows_no_secrets(monkeypatch):
    """The server's environment does not reach a command, and there is no input to wait for."""
    monkeypatch.setenv("SIGNOFF_SECRET_KEYS", "hush")
    monkeypatch.setenv("OPENAI_API_KEY", "hush")
    assert "hush" not in await _run("Bash", command="env; cat")


async def test_bash_output_is_capped():
    """An endless command neither fills memory nor the disk, and stops by itself."""
    found = await _run("Bash", command="yes")
    assert demo_tools.OUTPUT_LIMIT < len(found) < demo_tools.OUTPUT_LIMIT + 100
    assert "[cut after" in found
    assert "exit code" in found


async def test_bash_does_not_wait_for_background_children():
    """A child that keeps the output open does not keep the call."""
    async with asyncio.timeout(10):
        assert await _run("Bash", command="sleep 20 & echo $!") != ""


async def test_bash_is_killed_at_its_timeout(monkeypatch, ledger):
    """The command ends, the model hears why, the ledger has its end."""
    monkeypatch.setattr(demo_tools, "BASH_TIMEOUT_S", 0.2)
    with pytest.raises(TimeoutError, match=r"took longer than 0\.2 s"):
        await _run("Bash", command="echo $$ > pid; exec sleep 60")
    assert [line["phase"] for line in _lines(ledger)] == ["start", "end"]
    pid = int(await _run("Bash", command="cat pid"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_cancelled_command_is_killed(tmp_path):
    """Cancelling the run's step ends the process before the cancellation is passed on."""
    with _call("Bash"):
        task = asyncio.create_task(TOOLS["Bash"].run({"command": "echo $$ > pid; exec sleep 60"}))
    pid_file = _folder(tmp_path) / "pid"
    async with asyncio.timeout(10):
        while not (pid_file.exists() and pid_file.read_text()):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_files_are_written_and_read(tmp_path):
    """Folders are made, text is kept to the byte, absolute paths start at the scratch folder."""
    assert await _run("Write", path="a/b.txt", content="é\n") == "Wrote 3 bytes to a/b.txt."
    assert await _run("Read", path="a/../a/b.txt") == "é\n"
    await _run("Write", path="/srv/data/x", content="1")
    await _run("Write", path="//srv/data/x", content="2")
    assert (_folder(tmp_path) / "srv/data/x").read_text() == "2"
    assert await _run("Read", path="/srv/data/x") == "2"
    with pytest.raises(FileNotFoundError):
        await _run("Read", run_id=2, path="/srv/data/x")


@pytest.mark.parametrize(
    "path", ["", ".", "/", "..", "../x", "a/../../x", "/../../x", "link/x", "link", "out", "up/x"]
)
async def test_no_path_leaves_the_scratch_folder(path, tmp_path):
    """Neither dots nor links lead out, for reading or for writing."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("secret")
    (tmp_path / "scratch" / "x").parent.mkdir()
    (tmp_path / "scratch" / "x").write_text("secret")
    command = f"ln -s {outside} link; ln -s {outside}/x out; ln -s .. up"
    await _run("Bash", command=command)
    with pytest.raises(PermissionError):
        await _run("Read", path=path)
    with pytest.raises(PermissionError):
        await _run("Write", path=path, content="overwritten")
    assert (outside / "x").read_text() == "secret"
    assert (tmp_path / "scratch" / "x").read_text() == "secret"


async def test_a_link_inside_the_folder_is_followed():
    """What stays inside is allowed."""
    await _run("Bash", command="mkdir d; echo 1 > d/f; ln -s d/f l; ln -s d e")
    assert await _run("Read", path="l") == "1\n"
    assert await _run("Read", path="e/f") == "1\n"


async def test_reading_is_capped_and_takes_any_bytes():
    """A large or binary file is no trouble."""
    await _run("Bash", command="head -c 300000 /dev/zero | tr '\\0' x > big; printf '\\377' > bin")
    found = await _run("Read", path="big")
    assert found.startswith("xxx")
    assert "[cut after" in found
    assert await _run("Read", path="bin") == "\ufffd"


async def test_the_scratch_folder_is_private(tmp_path, monkeypatch):
    """Other system users can neither read it nor have made it."""
    await _run("Bash", command="true")
    assert _folder(tmp_path).stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("SIGNOFF_DEMO_SCRATCH")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert str(os.getuid()) in await _run("Bash", command="pwd")
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    (tmp_path / f"signoff-demo-{other}").mkdir()
    with pytest.raises(PermissionError, match="another user"):
        await _run("Bash", command="pwd")
