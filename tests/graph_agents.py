"""LangGraph graphs without a real model, for tests."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from signoff.interrupts import approve, ask, external

Node = Callable[[Any], Any]
#: How often nodes were entered, by name; only tests of a process read it.
entered: list[str] = []


class Flow(MessagesState):
    """The conversation, and what the nodes were told."""

    told: Annotated[list[Any], operator.add]
    output: Any


def graph_of(*waits: Any, schema: Any = Flow) -> Any:
    """A node for each value, side by side, then one that tells what all of them got."""
    builder: Any = StateGraph(schema)

    def waiting(value: Any) -> Node:
        def node(_: Any) -> Any:
            entered.append("waits")
            return {"told": [interrupt(value)]}

        return node

    builder.add_node("end", lambda state: {"output": {"told": state["told"]}})
    for n, value in enumerate(waits):
        builder.add_node(f"node{n}", waiting(value))
        builder.add_edge(START, f"node{n}")
    builder.add_edge([f"node{n}" for n in range(len(waits))], "end")
    builder.add_edge("end", END)
    return builder


def make_both() -> Any:
    """A payment to be approved beside a lookup that somebody else makes."""
    return graph_of(approve("send", {"what": "a"}), external("outside", {"what": "b"}))


class Chain(TypedDict):
    """A state without messages."""

    input: str
    output: str


def make_chain() -> Any:
    """Two tools one after the other out of one node, and a question."""
    builder: Any = StateGraph(Chain)

    async def work(state: Chain) -> Any:
        entered.append("work")
        first = interrupt(approve("send", {"what": state["input"]}))
        answer = interrupt(ask("Once more?", ["yes", "no"], header="Again"))
        if answer["answers"]["Once more?"] == "yes":
            second = interrupt(approve("send", {"what": first["content"]}))
            return {"output": second["content"]}
        return {"output": "enough"}

    builder.add_node("work", work)
    builder.add_edge(START, "work")
    return builder


@dataclass
class Order:
    """A type of the state's own."""

    number: int


class Orders(MessagesState):
    order: Order
    seen: Annotated[list[str], operator.add]


def make_talker() -> Any:
    """A model's answer, an approval in a subgraph, a model's answer; the state lives on."""
    inner: Any = StateGraph(Orders)

    def decide(state: Orders) -> Any:
        order = state["order"]
        assert isinstance(order, Order)
        answer = interrupt(approve("put", {"what": str(order.number)}))
        return {"seen": [answer["content"]], "order": Order(order.number + 1)}

    inner.add_node("decide", decide)
    inner.add_edge(START, "decide")

    async def speak(state: Orders) -> Any:
        usage: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        text = f"answer {len(state['messages'])}"
        reply = AIMessage(text, usage_metadata=usage)
        model = FakeMessagesListChatModel(responses=[reply])
        return {
            "messages": [await model.ainvoke(state["messages"])],
            "order": state.get("order", Order(1)),
        }

    outer: Any = StateGraph(Orders)
    outer.add_node("first", speak)
    outer.add_node("inner", inner.compile())
    outer.add_node("last", speak)
    outer.add_edge(START, "first")
    outer.add_edge("first", "inner")
    outer.add_edge("inner", "last")
    return outer.compile()


def make_office() -> Any:
    """A mail to be approved beside a value that another system knows."""
    mail = {"to": "ann@example.com", "subject": "Hello", "body": "Good morning"}
    return graph_of(approve("send_email", mail), {"what": "the price of A-1"})
