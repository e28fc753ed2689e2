"""Language models: the port, the scripted one, and the real providers."""
