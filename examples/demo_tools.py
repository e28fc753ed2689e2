"""Demo tools for tests and first steps; load them with ``SIGNOFF_TOOLS=examples.demo_tools``.

Each call writes its start and its end as a JSON line to ``SIGNOFF_DEMO_LEDGER``, if that is set,
which shows what really ran and how often. ``Bash``, ``Write`` and ``Read`` work in one scratch
folder per run, below ``SIGNOFF_DEMO_SCRATCH`` or the system's temporary folder. The folder keeps
an honest agent apart from other runs; it is no sandbox for a hostile command.
"""  # noqa: INP001 - no package here, so that tools in a user's own examples/ are found as well

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from signoff import current_call, tool

BASH_TIMEOUT_S = 60.0
# In 1 KiB blocks, for any file a command writes, its output included.
BASH_FILE_BLOCKS = 16 * 1024
OUTPUT_LIMIT = 32 * 1024
READ_LIMIT = 256 * 1024

Scalar = str | bool | int | float | None

DOCS = {
    "Approvals": "A tool call that needs a person parks the run; no worker is held meanwhile.",
    "Questions": "The agent asks with AskUserQuestion and goes on with the answers.",
    "Plans": "In plan mode the agent presents a plan and waits for its approval.",
    "Webhooks": "Events are signed, delivered at least once, and retried for two days.",
    "Retries": "A step that was cut off goes on from its last commit; effects do not run twice.",
}


@tool(read_only=True)
async def search_docs(query: str) -> str:
    """Search the product documentation and return the entries that match best."""
    with _recorded():
        words = {word.strip(".,;:?!").casefold() for word in query.split()}
        hits = [
            f"{title}: {text}"
            for title, text in DOCS.items()
            if any(word and word in f"{title} {text}".casefold() for word in words)
        ]
        return "\n".join(hits) or f"No entry matches {query!r}."


@tool
async def send_email(to: str, subject: str, body: str) -> str:
    """Send an email to one recipient; the demo only records it."""
    with _recorded():
        return f"Email sent to {to}: {subject!r}, {len(body)} characters."


@tool(idempotent=True)
async def set_flag(key: str, value: Scalar) -> str:
    """Set a feature flag to a value; setting it again changes nothing."""
    with _recorded():
        flags = _scratch() / ".flags.json"
        known = json.loads(flags.read_text()) if flags.exists() else {}
        known[key] = value
        _replace(flags, json.dumps(known))
        return f"Flag {key} is {json.dumps(value)}."


@tool
async def slow(seconds: float, tag: str) -> str:
    """Work for the given number of seconds, then report the tag."""
    with _recorded():
        if not seconds >= 0:
            msg = "seconds must not be negative"
            raise ValueError(msg)
        await asyncio.sleep(seconds)
        return f"{tag}: done after {seconds:g} s."


@tool
async def fail(message: str) -> str:
    """Fail with the given message."""
    with _recorded():
        raise RuntimeError(message)


@tool(patterns="shell")
async def Bash(command: str) -> str:  # noqa: N802 - the name models know
    """Run a shell command in the run's scratch folder; return what it prints and its exit code."""
    with _recorded(), tempfile.TemporaryFile() as output:
        # A file rather than a pipe: a background child cannot keep the call open by holding it.
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            f'ulimit -f {BASH_FILE_BLOCKS} && exec bash -c "$0"',
            command,
            cwd=_scratch(),
            env=_environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(BASH_TIMEOUT_S):
                code = await process.wait()
        except TimeoutError:
            msg = f"the command took longer than {BASH_TIMEOUT_S:g} s and was killed"
            raise TimeoutError(msg) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return _shown(output.fileno(), code)


@tool(patterns="path")
async def Write(path: str, content: str) -> str:  # noqa: N802 - the name models know
    """Write a text file in the run's scratch folder, replacing it if it exists."""
    with _recorded():
        target = _inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode()
        with os.fdopen(_open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(raw)
        return f"Wrote {len(raw)} bytes to {path}."


@tool(read_only=True, patterns="path")
async def Read(path: str) -> str:  # noqa: N802 - the name models know
    """Read a text file from the run's scratch folder."""
    with _recorded():
        with os.fdopen(_open(_inside(path), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            raw = file.read(READ_LIMIT + 1)
        text = raw[:READ_LIMIT].decode(errors="replace")
        return text if len(raw) <= READ_LIMIT else f"{text}\n[cut after {READ_LIMIT} bytes]"


@contextlib.contextmanager
def _recorded() -> Generator[None]:
    """Write the call's start line, and its end line however the call ends."""
    _record("start")
    try:
        yield
    finally:
        _record("end")


def _record(phase: Literal["start", "end"]) -> None:
    path = os.environ.get("SIGNOFF_DEMO_LEDGER")
    if not path:
        return
    call = current_call()
    line = {
        "run_id": call.run_id,
        "tool_use_id": call.tool_use_id,
        "tool": call.tool,
        "phase": phase,
        "digest": call.digest,
        "idempotency_key": call.idempotency_key,
        "ts": time.time(),
    }
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # One write: lines of several processes never mix, and a kill leaves no half a line.
        os.write(ledger, json.dumps(line).encode() + b"\n")
    finally:
        os.close(ledger)


def _scratch() -> Path:
    """The run's folder, made on first use and open to this system user alone."""
    given = os.environ.get("SIGNOFF_DEMO_SCRATCH")
    root = Path(given or Path(tempfile.gettempdir()) / f"signoff-demo-{os.getuid()}")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not given and root.lstat().st_uid != os.getuid():
        msg = f"{root} belongs to another user"
        raise PermissionError(msg)
    folder = root.resolve() / f"run-{current_call().run_id}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _inside(path: str) -> Path:
    """Where ``path`` is in the scratch folder, which is also the root of absolute paths."""
    root = _scratch()
    target = (root / path.lstrip("/")).resolve()
    if target == root or not target.is_relative_to(root):
        msg = f"{path!r} is not a file in the scratch folder"
        raise PermissionError(msg)
    return target


def _open(path: Path, flags: int) -> int:
    # The path is resolved, so a link in its last place was put there just now.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _replace(path: Path, text: str) -> None:
    """Change the file in one step: a kill leaves the old text or the new one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _environment() -> dict[str, str]:
    """What a command may know: where programs are, and none of the server's secrets."""
    folder = str(_scratch())
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}


def _shown(output: int, code: int) -> str:
    raw = os.pread(output, OUTPUT_LIMIT + 1, 0)
    text = raw[:OUTPUT_LIMIT].decode(errors="replace")
    if len(raw) > OUTPUT_LIMIT:
        text += f"\n[cut after {OUTPUT_LIMIT} bytes]"
    return text if code == 0 else f"{text}\n[exit code {code}]".lstrip("\n")
