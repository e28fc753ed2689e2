"""The document and its page as they are served."""

import pytest

from tests.integration.service.contract import DOCUMENT

pytestmark = pytest.mark.anyio


async def test_the_document_is_served_to_anybody(world):
    """/openapi.json needs no key, and tells of both mounts and of this service only."""
    served = await world.nobody.get("/openapi.json")
    assert (served.status_code, served.headers["content-type"]) == (200, "application/json")
    document = served.json()
    assert document["openapi"].startswith("3.1")
    assert document["paths"] == {
        path: one for path, one in DOCUMENT["paths"].items() if "auth" not in path
    }


async def test_the_page_loads_and_runs_nothing(world):
    """/docs is one page; its policy forbids scripts and other hosts, and its style is its own."""
    served = await world.nobody.get("/docs/")
    assert served.headers["content-type"].startswith("text/html")
    policy = served.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "<script" not in served.text
    assert "style=" not in served.text
    assert served.text.count("<style>") == 1
    assert "POST</b> <code>/v1/runs/{run_id}/approve</code>" in served.text


@pytest.mark.parametrize("method", ["post", "put", "delete"])
@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_the_document_is_for_reading(world, path, method):
    """Other methods are refused as everywhere."""
    assert (await getattr(world.nobody, method)(path)).status_code == 405
