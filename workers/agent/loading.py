"""Imports the agents that the operator named; callers of the API know their names only."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from signoff.domain.error import SettingsError
from signoff.toolbox import first_on_path
from workers.agent.hosted import Factory, HostedAgent
from workers.agent.loop import AgentLoop
from workers.agent.roster import Roster

SETTING = "SIGNOFF_AGENTS"


def load_roster(paths: Mapping[str, str], cwd: Path, *, timeout_s: float) -> Roster:
    """The agents of ``paths`` (name to ``module:attribute``), looked up in ``cwd`` first."""
    loop = AgentLoop()
    with first_on_path(str(cwd.resolve())):
        return Roster(
            {
                name: HostedAgent(name, _factory(name, path), loop, timeout_s=timeout_s)
                for name, path in paths.items()
            }
        )


def _factory(name: str, path: str) -> Factory:
    module, _, attribute = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        msg = f"the agent {name} cannot be loaded from {path}: {type(error).__name__}: {error}"
        raise SettingsError(msg, field=SETTING) from error
    if not callable(found):
        msg = f"the agent {name}: {path} is not a function that makes an agent"
        raise SettingsError(msg, field=SETTING)
    return found
