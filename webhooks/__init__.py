"""Outgoing webhooks: what is announced, to whom it may go, and one attempt after the other."""
