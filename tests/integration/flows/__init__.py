"""Whole flows in one process: the service, an engine that can be restarted, a listening model."""
