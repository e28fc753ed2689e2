"""Tools that outside systems execute, for tests."""

from signoff import tool


@tool(external=True)
def look_up(order: str) -> str:
    """Look an order up in the shop's own system."""
    raise AssertionError
