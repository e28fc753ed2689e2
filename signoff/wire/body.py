"""What all request bodies share: strict types, and how unknown fields are met."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from typing_extensions import TypedDict

from signoff.domain.approval import MAX_APPROVERS
from signoff.domain.expiry import MAX_WAIT_S

#: The end user that a thing belongs to; free text of the account's own.
UserId = Annotated[str, Field(min_length=1, max_length=255)]
ModeName = Literal["autonomous", "approval", "plan"]


#: Seconds that a person has.
Wait = Annotated[float, Field(gt=0, le=MAX_WAIT_S, allow_inf_nan=False)]
ExpiryName = Literal["deny", "cancel", "answer"]


class Body(BaseModel):
    """A body read without coercion; fields it does not know are ignored.

    Clients of the reference platform send more than this service has a use for.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class ExternalTool(Body):
    """A tool that an outside system executes, declared on a run or an agent."""

    name: str
    description: Annotated[str, Field(max_length=10_000)] = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None

    def declaration(self) -> dict[str, Any]:
        """The declaration as it is kept and shown."""
        found: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
        }
        if self.output_schema is not None:
            found["output_schema"] = self.output_schema
        return found


class ClosedBody(BaseModel):
    """A body read without coercion in which an unknown field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class GivenServer(ClosedBody):
    """An MCP server of the account's own, by address; its headers are kept sealed."""

    name: Annotated[str, Field(min_length=1, max_length=32)]
    url: Annotated[str, Field(min_length=1, max_length=2048)]
    headers: Annotated[dict[str, str], Field(max_length=16)] | None = None


def _kind(value: object) -> str:
    return "<name>" if isinstance(value, str) else "<server>"


#: Servers of the operator by name, and the account's own.
GivenServers = Annotated[
    list[
        Annotated[
            Annotated[str, Tag("<name>")] | Annotated[GivenServer, Tag("<server>")],
            Discriminator(_kind),
        ]
    ],
    Field(max_length=64),
]


class ServerBody(TypedDict):
    """An MCP server of the account's own as it is shown: the values of its headers are masked."""

    name: str
    url: str
    headers: dict[str, str]


class Approvers(ClosedBody):
    """Who may decide the gates of a run."""

    any_of: list[str] | None = None
    quorum: Annotated[int, Field(ge=1, le=MAX_APPROVERS)] | None = None
    exclude_requester: bool | None = None


class ApproversBody(TypedDict):
    """The same as it is shown."""

    any_of: list[str] | None
    quorum: int
    exclude_requester: bool
