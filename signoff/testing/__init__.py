"""For tests of code that uses the SDK: a fake service, and signed sample webhooks."""

from signoff.testing.service import FakeService, FakeTransport
from signoff.testing.webhook import SECRET, SignedWebhook, signed_webhook

__all__ = ["SECRET", "FakeService", "FakeTransport", "SignedWebhook", "signed_webhook"]
