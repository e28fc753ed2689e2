"""docs/sdk.md has every method of the clients, with every parameter."""

from tests.contract.sdk_reference import PAGE, written


def test_the_reference_is_that_of_the_code():
    """Run ``.venv/bin/python -m tests.contract.sdk_reference`` after a change of a method."""
    page = PAGE.read_text()
    assert page == written(page)
    assert "\nwait(run_id: int, *, on_approval: OnApproval | None" in page
