"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Client, Dev, Receiver, running


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One `signoff dev` for a module whose tests break nothing."""
    with running(tmp_path_factory.mktemp("dev")) as started:
        yield started


@pytest.fixture
def client(dev: Dev) -> Iterator[Client]:
    """A client of the module's server."""
    made = dev.client()
    yield made
    made.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook receiver."""
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for one server."""
    return tmp_path
