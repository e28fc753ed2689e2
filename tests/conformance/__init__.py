"""The platform's own client, unmodified, against a running service."""
