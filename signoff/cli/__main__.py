"""Runs the command as ``python -m signoff.cli``, or from this file's path under ``python -P``."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Started by path, so that neither the working directory nor PYTHONPATH decides which copy
    # of the package the processes of `signoff dev` run: it is the one that this file is in.
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)

from signoff.cli import main

if __name__ == "__main__":
    sys.exit(main())
