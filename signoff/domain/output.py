"""Names of the structured answer that a run with an ``output_schema`` owes."""

from __future__ import annotations

#: The tool with which a model gives it.
OUTPUT_TOOL = "SubmitOutput"
#: How a run ends whose model did not, although it was asked again.
OUTPUT_INVALID = "output_invalid"
#: Marks messages in which the service asks the model again, on behalf of nobody.
ASKED_BY = "service"
#: How often a turn's answer is asked for again.
REPEATS = 2
ACCEPTED = "The output was accepted."
ALONE = (
    f"{OUTPUT_TOOL} ends the task, so it must be the only call of its step. Call it again when you "
    "have the results of the others."
)
NO_OBJECT = "The output must be a JSON object of the required form."


def correction(wrong: str) -> str:
    """What is said to a model that answered in words, for the reason ``wrong``."""
    return f"{wrong} Give your answer with the tool {OUTPUT_TOOL}."


def failure_text(wrong: str) -> str:
    """The error of a turn that ends without its answer."""
    return f"no output of the required form was given: {wrong}"
