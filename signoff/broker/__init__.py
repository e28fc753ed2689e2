"""The Celery side that everybody shares: options, the task's name, and sending hints."""
