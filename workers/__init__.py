"""The workers: Celery wakes them, the store tells them what to do."""
