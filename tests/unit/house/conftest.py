"""What the house tests look at: the repository's files, read once."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOT_OURS = frozenset({"__pycache__", "build", "dist", "node_modules"})


def _own_files() -> list[Path]:
    found: list[Path] = []
    for folder, below, names in os.walk(ROOT):
        below[:] = [
            name
            for name in sorted(below)
            if name not in NOT_OURS and (not name.startswith(".") or name == ".ci")
        ]
        found.extend(
            Path(folder, name) for name in sorted(names) if not name.startswith(".coverage")
        )
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def texts() -> dict[Path, str]:
    """Every text file of the repository by its path relative to the root."""
    contents: dict[Path, str] = {}
    for path in _own_files():
        raw = path.read_bytes()
        if b"\0" not in raw:
            contents[path.relative_to(ROOT)] = raw.decode("utf-8", "replace")
    return contents


@pytest.fixture(scope="session")
def project() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
