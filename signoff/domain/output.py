"""Names of the structured answer that a run with an ``output_schema`` owes."""

from __future__ import annotations

#: The tool with which a model gives it.
OUTPUT_TOOL = "SubmitOutput"
#: How a run ends whose model did not, although it was asked again.
OUTPUT_INVALID = "output_invalid"
#: Marks messages in which the service asks the model again, on behalf of nobody.
ASKED_BY = "service"
