"""Which model names this deployment answers to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from signoff.domain.error import InvalidFieldError

SCRIPTED = "scripted"
#: What the name of an agent of the operator begins with.
AGENT = "agent:"
# The short names that clients of the seed send; all mean the configured default.
ALIASES = frozenset({"sonnet", "opus", "haiku"})

_QUALIFIED = re.compile(r"(anthropic|openai):[!-~]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNames:
    """The configured default and providers; an empty default means that none is configured."""

    default: str
    anthropic: bool = False
    openai: bool = False
    scripted: bool = False
    #: The agents of the operator, without the prefix.
    agents: frozenset[str] = frozenset()

    def resolve(self, name: str | None) -> str:
        """The full name of the model to use: ``provider:model``, ``agent:name`` or ``scripted``.

        Raises InvalidFieldError, code ``unknown_model``, for a name without a configured provider.
        """
        wanted = self.default if name is None or name in ALIASES else name
        if not wanted:
            raise _unknown("no model is configured: set a provider's key")
        if not self.configured(wanted):
            shown = ascii(wanted[:60])
            raise _unknown(f"the model {shown} is unknown or its provider is not configured")
        return wanted

    def configured(self, name: str) -> bool:
        """True when ``name`` is a full name whose provider can be called from here."""
        if name == SCRIPTED:
            return self.scripted
        if name.startswith(AGENT):
            return name.removeprefix(AGENT) in self.agents
        found = _QUALIFIED.fullmatch(name)
        if found is None:
            return False
        return self.anthropic if found[1] == "anthropic" else self.openai


def _unknown(message: str) -> InvalidFieldError:
    return InvalidFieldError(message, code="unknown_model", field="model")
