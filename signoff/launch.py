"""Finds the application's packages, bundled or in a checkout, and makes them importable here."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

APPLICATION = ("service", "workers", "webhooks")


def application_root() -> Path:
    """Return the folder that holds the application's packages: the wheel's, or the checkout's."""
    here = Path(__file__).resolve().parent
    bundled = here / "_app"
    return bundled if bundled.is_dir() else here.parent


def enter_application() -> Path:
    """Make this version's ``service``, ``workers`` and ``webhooks`` importable in this process.

    Not by PYTHONPATH: every process that a tool starts would inherit it. The three packages are
    imported at once, because Celery and the loader of tools put the working directory before ours
    later on, where a folder of the same name must not win.
    """
    root = application_root()
    place = str(root)
    sys.path[:] = [place, *(entry for entry in sys.path if entry != place)]
    for package in APPLICATION:
        importlib.import_module(package)
    return root
