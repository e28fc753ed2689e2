"""MCP servers as a source of tools; the only place that speaks the protocol."""
