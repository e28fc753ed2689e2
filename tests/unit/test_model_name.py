"""Model names: what is offered is what is configured."""

import pytest

from signoff.domain.error import InvalidFieldError
from signoff.model_name import ModelNames

ALL = ModelNames(default="anthropic:claude-x", anthropic=True, openai=True, scripted=True)
NONE = ModelNames(default="")
SCRIPTED = ModelNames(default="scripted", scripted=True)


@pytest.mark.parametrize("name", [None, "sonnet", "opus", "haiku"])
def test_short_names_are_the_default(name):
    """Clients of the seed name tiers; here they all mean the configured model."""
    assert ALL.resolve(name) == "anthropic:claude-x"
    assert SCRIPTED.resolve(name) == "scripted"
    with pytest.raises(InvalidFieldError, match="no model is configured"):
        NONE.resolve(name)


@pytest.mark.parametrize("name", ["openai:gpt-x", "anthropic:claude-y", "scripted", "openai:a/b:c"])
def test_full_names_need_their_provider(name):
    """A name is taken as it is where its provider is configured, and only there."""
    assert ALL.resolve(name) == name
    with pytest.raises(InvalidFieldError):
        NONE.resolve(name)


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5",
        "",
        "google:gemini",
        "openai:",
        "openai",
        "OpenAI:gpt-x",
        "openai:a b",
        "Sonnet",
        "openai:gpt\n",
        "openai:\ud800",
        "x" * 10_000,
    ],
)
def test_other_names_are_unknown(name):
    """The error names the field and can be sent, whatever the name holds."""
    with pytest.raises(InvalidFieldError) as caught:
        ALL.resolve(name)
    assert (caught.value.code, caught.value.field) == ("unknown_model", "model")
    assert len(caught.value.message.encode()) < 500


def test_an_agent_is_named_like_a_model():
    """By the names that the operator gave, and by nothing that looks like a path."""
    names = ModelNames(default="agent:a", agents=frozenset({"a", "b"}))
    assert names.resolve(None) == "agent:a"
    assert names.resolve("agent:b") == "agent:b"
    for name in ("agent:", "agent:c", "agent:a:b", "agent:a ", "a"):
        with pytest.raises(InvalidFieldError):
            names.resolve(name)


def test_a_default_without_its_provider_is_unknown():
    """A wrong default shows as soon as it is used."""
    with pytest.raises(InvalidFieldError, match="openai:gpt-x"):
        ModelNames(default="openai:gpt-x", anthropic=True).resolve(None)
