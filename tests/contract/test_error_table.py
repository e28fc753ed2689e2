"""The table from error codes to HTTP is complete, and says nothing of codes that do not exist."""

import ast
import importlib
import pkgutil
from pathlib import Path

import service
import signoff
import webhooks
from service.errors import STATUS, problem
from signoff.domain.error import SignoffError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (signoff, service, webhooks)
# Parts of command-line programs, whose errors end in a terminal, and what runs at the client.
NO_HTTP = ("signoff.cli", "signoff.client", "signoff.demo", "signoff.supervise", "signoff.testing")


def _modules():
    for package in PACKAGES:
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(NO_HTTP):
                yield importlib.import_module(found.name)


def _classes(root):
    for child in root.__subclasses__():
        yield child
        yield from _classes(child)


def _written_codes():
    """Codes given as ``code="..."`` where errors are raised."""
    for package in PACKAGES:
        for path in (ROOT / package.__name__).rglob("*.py"):
            if ".".join(path.relative_to(ROOT).parts).startswith(NO_HTTP):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                        yield code
                    case _:
                        pass


def _codes():
    list(_modules())
    classes = {
        found.code
        for found in _classes(SignoffError)
        if found.__module__.startswith(tuple(f"{package.__name__}." for package in PACKAGES))
        and not found.__module__.startswith(NO_HTTP)
    }
    return classes | {SignoffError.code} | set(_written_codes())


def test_every_code_has_a_status():
    """Whatever error leaves the service has its own line in the table."""
    assert _codes() - set(STATUS) == set()


def test_every_line_is_in_use():
    """The table holds no code that nothing raises, except those the store's scripts answer."""
    from_scripts = {
        "gate_cancelled",
        "gate_changed",
        "gate_not_found",
        "gate_resolved_otherwise",
        "run_not_active",
    }
    assert set(STATUS) - _codes() - from_scripts == set()


def test_envelopes_carry_the_code_twice_and_hide_our_failures():
    """error_code stands at the top and in details; of 5xx only the kind is told."""
    for code, status in STATUS.items():
        error = SignoffError("why", code=code, field="a.b", details={"x": 1})
        body = problem(error, request_id="req_1")["error"]
        assert body["code"] == status
        assert body["error_code"] == body["details"]["error_code"]
        if status >= 500:
            assert body["error_code"] in {"internal_error", "unavailable"}
            assert set(body["details"]) == {"error_code"}
            assert "why" not in body["message"]
        else:
            assert body["error_code"] == code
            assert (body["details"]["field"], body["details"]["x"]) == ("a.b", 1)
