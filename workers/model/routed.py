"""The one model a worker holds: it hands each request to whoever answers to its name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from signoff.model_name import SCRIPTED
from workers.model.port import Count, ModelError, ModelReply, ModelRequest, OnText
from workers.model.scripted import ScriptedModel

if TYPE_CHECKING:
    from workers.model.provider import ProviderModel


class RoutedModel:
    """``scripted`` goes to the scripted model if there is one, all others to the providers."""

    def __init__(
        self,
        *,
        scripted: ScriptedModel | None,
        anthropic_api_key: str | None = None,
        openai_api_key: str | None = None,
        openai_base_url: str | None = None,
    ) -> None:
        """``scripted`` is None in production."""
        self._scripted = scripted
        self._keys = {
            "anthropic_api_key": anthropic_api_key,
            "openai_api_key": openai_api_key,
            "openai_base_url": openai_base_url,
        }
        self._providers: ProviderModel | None = None

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        """The reply of the model that ``request`` names."""
        if request.model != SCRIPTED:
            return await self._provider().reply(request, on_text=on_text, count=count)
        if self._scripted is None:
            raise ModelError("auth", "the scripted model is off")
        return await self._scripted.reply(request, on_text=on_text, count=count)

    async def aclose(self) -> None:
        """Close what the providers' clients hold open."""
        if self._providers is not None:
            await self._providers.aclose()

    def _provider(self) -> ProviderModel:
        if self._providers is None:
            try:
                # Not at the top: it takes a second to load and is an extra of its own.
                module = importlib.import_module("workers.model.provider")
            except ModuleNotFoundError as error:
                msg = "providers need the extra: pip install 'signoff[models]'"
                raise ModelError("auth", msg) from error
            made: ProviderModel = module.ProviderModel(**self._keys)
            self._providers = made
        return self._providers
