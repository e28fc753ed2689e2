"""Signoff: durable runs that stop and ask; this package is the SDK and the server's ground."""

__version__ = "0.1.0"
