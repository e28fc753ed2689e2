"""The SDK: a sync and an async client of the service, with the same names."""

from signoff.client.async_client import AsyncClient
from signoff.client.client import Client
from signoff.client.decision import Allow, Deny, Supply
from signoff.client.sse import Frame
from signoff.client.values import (
    Agent,
    Delivery,
    Evaluation,
    Message,
    Page,
    PermissionRequest,
    Policy,
    Question,
    Run,
    User,
    Webhook,
)

__all__ = [
    "Agent",
    "Allow",
    "AsyncClient",
    "Client",
    "Delivery",
    "Deny",
    "Evaluation",
    "Frame",
    "Message",
    "Page",
    "PermissionRequest",
    "Policy",
    "Question",
    "Run",
    "Supply",
    "User",
    "Webhook",
]
