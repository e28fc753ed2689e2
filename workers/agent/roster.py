"""The agents that the operator named: ``agent:<name>`` stands where a model's name would."""

from __future__ import annotations

from collections.abc import Mapping

from signoff.agents import Agent, AgentFailedError
from signoff.model_name import AGENT


class Roster:
    """Agents by name; whoever starts a run chooses among names, never among import paths."""

    def __init__(self, agents: Mapping[str, Agent] | None = None) -> None:
        self._agents = dict(agents or {})

    def of(self, model: str) -> Agent | None:
        """The agent that ``model`` names; None for the native one, which asks that model.

        Raises AgentFailedError for a name that this process does not have.
        """
        if not model.startswith(AGENT):
            return None
        found = self._agents.get(model.removeprefix(AGENT))
        if found is None:
            raise AgentFailedError("agent_error", f"this worker has no agent for {model!a}")
        return found
