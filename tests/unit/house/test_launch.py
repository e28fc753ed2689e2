"""The application of a checkout is the repository itself, first on the path and once."""

import sys
from pathlib import Path

from signoff.launch import application_root, enter_application


def test_checkout_is_its_own_application_root(root: Path) -> None:
    """Without a bundle the application is the repository itself."""
    assert application_root() == root


def test_entering_twice_changes_nothing(root: Path) -> None:
    """The application's folder comes first on the path, once."""
    before = list(sys.path)
    try:
        enter_application()
        once = list(sys.path)
        enter_application()
        assert sys.path == once
        assert once[0] == str(root)
        assert once.count(str(root)) == 1
    finally:
        sys.path[:] = before
