"""Agents behind the port: the native loop, those of the operator, and their frameworks."""
