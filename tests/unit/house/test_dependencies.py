"""The declared dependencies: reasons, pins and security floors."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# The oldest release without a known hole that matters here; a floor may rise, never fall.
SECURITY_FLOORS = {
    "celery": "5.2.2",  # command injection through result data (CVE-2021-23727)
    "redis": "4.5.4",  # replies delivered to the wrong caller (CVE-2023-28858 and its follow-up)
    "mcp": "2.3",
    "starlette": "1.0.1",
    "cryptography": "44",
}
PINNED_FLOORS = {
    "h11": "0.16",  # request smuggling (CVE-2025-43859); reaches us through httpx
    "python-multipart": "0.0.18",  # CVE-2024-53981; comes with mcp, whose client does not use it
}
UNWANTED = frozenset({"pickle5", "dill"})


def _requirements(project: dict[str, Any]) -> Iterator[Requirement]:
    for line in project["project"]["dependencies"]:
        yield Requirement(line)
    for lines in project["project"]["optional-dependencies"].values():
        yield from map(Requirement, lines)
    for lines in project["dependency-groups"].values():
        yield from (Requirement(line) for line in lines if isinstance(line, str))


def _pins(root: Path) -> dict[str, Version]:
    pins: dict[str, Version] = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            pins[canonicalize_name(name)] = Version(version)
    return pins


def _floor(requirement: Requirement) -> Version:
    floors = [Version(part.version) for part in requirement.specifier if part.operator == ">="]
    assert len(floors) == 1, f"{requirement} needs exactly one lower bound"
    return floors[0]


def test_every_dependency_has_a_reason(root: Path, project: dict[str, Any]) -> None:
    """The decision record has one line of reason for each direct dependency, and none besides."""
    record = (root / "docs/decisions/0002-dependencies.md").read_text(encoding="utf-8")
    decided = record.split("## Decision")[1].split("## Consequences")[0]
    reasons = re.findall(r"^- `([\w-]+)`:", decided, re.MULTILINE)
    assert set(reasons) == {canonicalize_name(item.name) for item in _requirements(project)}


def test_every_dependency_is_pinned_within_its_range(root: Path, project: dict[str, Any]) -> None:
    """The constraints hold an exact version for each direct dependency, inside its range."""
    pins = _pins(root)
    for requirement in _requirements(project):
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{requirement} against {pin}"


def test_constraints_are_plain_pins(root: Path) -> None:
    """The constraints are exact versions only: no address, no hash, no local path."""
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    odd = [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[\w.]+", line)]
    assert odd == []


def test_security_floors_do_not_fall(root: Path, project: dict[str, Any]) -> None:
    """No range admits a release with a known hole, and nothing unwanted is pulled in."""
    declared = {canonicalize_name(item.name): item for item in _requirements(project)}
    pins = _pins(root)
    for name, floor in SECURITY_FLOORS.items():
        assert _floor(declared[canonicalize_name(name)]) >= Version(floor), name
    for name, floor in PINNED_FLOORS.items():
        assert pins[canonicalize_name(name)] >= Version(floor), name
    assert UNWANTED.isdisjoint(pins)
