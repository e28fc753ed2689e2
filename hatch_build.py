"""Puts the application's flat packages into real wheels as data of ``signoff``.

Why they are neither mapped to ``signoff.*`` nor shipped under their own names:
docs/decisions/0001-flat-packages-bundled-in-the-wheel.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

APPLICATION = ("service", "workers", "webhooks")


class BundleHook(BuildHookInterface):  # type: ignore[type-arg]  # generic only in newer hatchling
    """Adds each application package under ``signoff/_app/``; an editable install needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Extend the list of forced files of a standard wheel."""
        if version != "standard":
            return
        for package in APPLICATION:
            source = Path(self.root, package)
            build_data["force_include"][str(source)] = f"signoff/_app/{package}"
