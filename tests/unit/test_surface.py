"""The public surface of the package: which names there are, and what asking for one loads."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import signoff
from signoff import signing, tooldef
from signoff.client import async_client, client
from signoff.domain import error

SURFACE = {
    "AsyncClient": async_client.AsyncClient,
    "Client": client.Client,
    "SignatureError": signing.SignatureError,
    "SignoffError": error.SignoffError,
    "__version__": signoff.__version__,
    "current_call": tooldef.current_call,
    "sign_decision": signing.sign_decision,
    "tool": tooldef.tool,
    "verify": signing.verify,
}
#: Which names may load what, besides the standard library and ourselves.
PARTIES = {
    "__version__": frozenset[str](),
    "verify": frozenset[str](),
    "sign_decision": frozenset[str](),
    "SignatureError": frozenset[str](),
    "SignoffError": frozenset[str](),
    "Client": frozenset(
        {
            "annotated_types",
            "anyio",
            "certifi",
            "click",  # httpx loads its own command line where click and rich are installed
            "h11",
            "httpcore",
            "httpx",
            "idna",
            "markdown_it",
            "mdurl",
            "pydantic",
            "pydantic_core",
            "pygments",
            "rich",
            "sniffio",
            "typing_extensions",
            "typing_inspection",
            "zstandard",  # httpx reads that encoding where it is installed
        }
    ),
    "tool": frozenset(
        {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
    ),
}

PROBE = """
import json, sys
before = set(sys.modules)
from signoff import {name}
roots = {{module.partition(".")[0] for module in set(sys.modules) - before}}
known = sys.stdlib_module_names | {{"signoff"}}
print(json.dumps([root for root in roots - known if not root.startswith("_sysconfigdata_")]))
"""


def test_exports_are_a_known_list() -> None:
    """The package exports these names and no others; adding one is a decision."""
    assert sorted(signoff.__all__) == sorted(SURFACE)
    assert set(SURFACE) <= set(dir(signoff))


@pytest.mark.parametrize("name", SURFACE)
def test_every_export_is_what_its_module_defines(name: str) -> None:
    """An exported name is the very object of the module that owns it."""
    assert getattr(signoff, name) is SURFACE[name]


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Asking for anything else fails as it does in every module."""
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(signoff, "nonsense")  # noqa: B009 - the checkers rightly refuse the plain spelling


def test_no_submodule_hides_an_export() -> None:
    """Importing a submodule binds its name in the package, so none is named like an export."""
    submodules = {found.name for found in pkgutil.iter_modules(signoff.__path__)}
    assert submodules.isdisjoint(signoff.__all__)
    import_module("signoff.toolbox")
    assert signoff.tool is tooldef.tool


@pytest.mark.parametrize("name", PARTIES)
def test_a_name_loads_no_more_than_it_needs(name: str) -> None:
    """Verifying and signing load no third party; declaring a tool loads pydantic and no server."""
    asked = subprocess.run(
        [sys.executable, "-c", PROBE.format(name=name)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert set(json.loads(asked.stdout)) <= PARTIES[name]
