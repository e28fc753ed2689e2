"""The HTTP service: what clients call, and where signed decisions come in."""
