"""Every route says of itself what it reads and answers, and the document says it to clients."""

import json

import pytest

from service.api.table import all_routes
from service.errors import STATUS
from service.openapi import build
from service.operation import UndescribedError, operation, operation_of
from service.page import page

MOUNTS = all_routes(development=True)
ROUTES = [
    pytest.param(handler, id=f"{method} {mount.prefix}{route.path}")
    for mount in MOUNTS
    for route in mount.routes
    for method, handler in route.handlers.items()
]


@pytest.mark.parametrize("handler", ROUTES)
def test_every_route_is_described(handler):
    """A route's handler has a description, a docstring, and only codes that exist."""
    try:
        described = operation_of(handler)
    except UndescribedError as error:
        pytest.fail(str(error), pytrace=False)
    assert handler.__doc__
    assert set(described.refuses) <= set(STATUS)
    names = [(one.place, one.name) for one in described.parameters]
    assert len(names) == len(set(names))


def test_an_undescribed_handler_is_told_what_to_do():
    """Who adds a route without a description is told how to write one."""

    async def nothing():
        """Nothing."""

    with pytest.raises(UndescribedError, match=r"nothing is not described.*@operation.*CONTRIB"):
        operation_of(nothing)
    operation()(nothing)
    assert operation_of(nothing).answers == ()


def test_the_document_has_every_route_once():
    """Both mounts, the root and every method stand in the document, under ids of their own."""
    document = build(MOUNTS, version="1")
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({one["operationId"] for one in operations}) == len(operations)
    native = {path[3:] for path in document["paths"] if path.startswith("/v1/")}
    other = {path[7:] for path in document["paths"] if path.startswith("/api/v2/")}
    assert native == other
    assert {"/health", "/ready", "/openapi.json", "/docs"} <= document["paths"].keys()


def test_every_reference_leads_somewhere():
    """The document and the page have no dangling reference."""
    document = build(MOUNTS, version="1")
    text = json.dumps(document)
    shown = page(document)
    for name in document["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text
        assert f'id="{name}"' in shown
    assert text.count('"$ref"') == text.count('"$ref": "#/components/schemas/')


def test_the_page_treats_words_as_text():
    """Nothing in the document is markup in the page."""
    document = build(MOUNTS, version='1"><script>')
    shown = page(document)
    assert "<script" not in shown
    assert "src=" not in shown
    assert "http" not in shown.replace("https", "").partition("</style>")[0]
