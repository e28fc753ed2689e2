"""The SDK has an exception for every code of the service, with the service's status."""

import pytest

from service.errors import STATUS
from signoff.client import errors
from signoff.client.errors import CODES, ApiError, error_of

HIDDEN = 500  # what the service only logs, and tells as one of two codes


@pytest.mark.parametrize("code", [code for code, status in STATUS.items() if status < HIDDEN])
def test_every_code_has_an_exception_of_its_own(code):
    """A refusal with this code is raised as a class that has the code and the status."""
    body = {"error": {"message": "why", "error_code": code, "details": {"field": "a.b"}}}
    raised = error_of(STATUS[code], body)
    assert type(raised) is CODES[code]
    assert (raised.code, raised.status, raised.field) == (code, STATUS[code], "a.b")
    assert CODES[code].status == STATUS[code]


def test_failures_of_the_service_are_two_codes():
    """What the service hides behind 500 and 503 has classes too."""
    assert CODES["internal_error"] is errors.ServerError
    assert CODES["unavailable"] is errors.UnavailableError


def test_no_two_exceptions_share_a_code():
    """The table from codes to classes loses none."""
    classes = [found for found in vars(errors).values() if isinstance(found, type)]
    api = [found for found in classes if issubclass(found, ApiError) and found is not ApiError]
    assert len({found.code for found in api}) == len(api) == len(CODES)
