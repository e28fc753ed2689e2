"""What the scripted model of the demo says and asks for, turn by turn."""

from __future__ import annotations

from typing import Any

QUESTION = "When may the database be down for ten minutes?"
ANSWER = "Saturday 06:00"
EMAIL = {
    "to": "ops@customer.example",
    "subject": "Maintenance on Saturday",
    "body": "The database will be down for ten minutes on Saturday at 06:00.",
}
MESSAGE = "Announce the database maintenance to our customers."
SCRIPT: list[dict[str, Any]] = [
    {
        "text": "I look up who is affected, and need one answer.",
        "tool_calls": [
            {"name": "find_customers", "input": {"product": "database"}},
            {
                "name": "AskUserQuestion",
                "input": {
                    "questions": [
                        {
                            "question": QUESTION,
                            "header": "Window",
                            "multiSelect": False,
                            "options": [
                                {"label": ANSWER, "description": "Least traffic"},
                                {"label": "Sunday 22:00", "description": "Before the week"},
                            ],
                        }
                    ]
                },
            },
        ],
    },
    {"plan": "Check Saturday in the calendar, then email ops@customer.example."},
    {"tool_calls": [{"name": "check_calendar", "input": {"day": "Saturday"}}]},
    {"tool_calls": [{"name": "send_email", "input": EMAIL}]},
    {"text": "Done: {{last_results}}"},
]
