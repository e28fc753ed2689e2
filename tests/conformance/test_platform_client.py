"""Every flow of the platform's unmodified client against a real `signoff dev`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.interpreter import OLDEST, NoClientError, client_python, find
from tests.e2e.harness import KEY, Dev, running

SCRIPT = Path(__file__).with_name("flows.py")
# Read, not imported: the flows need the client's own interpreter.
FLOWS = re.findall(r"^def flow_(\w+)", SCRIPT.read_text(), re.MULTILINE)

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="session")
def python() -> str:
    """The client's interpreter; without one the flows are skipped, or fail where they must run."""
    try:
        return client_python()
    except NoClientError as error:
        if os.environ.get("CONFORMANCE") == "required":
            pytest.fail(f"the client cannot be run here: {error}")
        pytest.skip(f"conformance was NOT checked: {error}")


@pytest.fixture(scope="module")
def platform(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """The service, only started where the client can run."""
    with running(tmp_path_factory.mktemp("platform")) as started:
        yield started


@pytest.mark.parametrize("flow", FLOWS)
def test_the_unmodified_client_finds_what_it_expects(flow: str, python: str, platform: Dev) -> None:
    """Only the base URL differs, and no warning of the client is left unheard."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    found = subprocess.run(
        [python, "-W", "error", str(SCRIPT), flow, platform.url, KEY],
        capture_output=True,
        text=True,
        env=environ,
        timeout=90,
        check=False,
    )
    assert found.stdout.strip() == "ok", found.stderr[-4000:]


def test_an_interpreter_that_is_too_old_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names what is needed, what was found, and how to say where it is."""
    for named in ("/nowhere/python3", "/bin/false"):
        monkeypatch.setenv("CONFORMANCE_PYTHON", named)
        with pytest.raises(NoClientError) as caught:
            find()
        assert ".".join(map(str, OLDEST)) in str(caught.value)
        assert "CONFORMANCE_PYTHON" in str(caught.value)
