"""Celery options for hints that may be lost, late or doubled without harm.

Work is never kept in Celery: no results, no retries, no ETA; see docs/decisions/.
"""

from __future__ import annotations

from celery import Celery

DRAIN_TASK = "signoff.drain"
QUEUE = "signoff"


def make_celery(broker_url: str) -> Celery:
    """A Celery application that speaks JSON over Redis with bounded timeouts."""
    app = Celery("signoff", broker=broker_url, set_as_current=False)
    app.conf.update(
        broker_transport_options={
            "global_keyprefix": "sg:celery:",
            # Frees entries of dead workers; duplicates meet the lease and do nothing.
            "visibility_timeout": 3600,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            # The default is None: a frozen broker would block publishers for ever.
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_default_queue=QUEUE,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_ignore_result=True,
        task_publish_retry=False,
        task_serializer="json",
        accept_content=["json"],
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        # A lost connection must not cancel a drain: its leases are its own business.
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    return app
