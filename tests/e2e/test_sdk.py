"""The SDK's calls of agents and end users, and waiting, against a real service; both clients."""

import time
import uuid

import pytest

from signoff import AsyncClient, Client
from signoff.client import errors as e
from tests.e2e.harness import KEY

pytestmark = pytest.mark.anyio


@pytest.fixture
def sdk(dev):
    with Client(base_url=dev.url, api_key=KEY) as made:
        yield made


def test_an_agent_lives_and_runs_start_from_it(sdk):
    """Made, changed, disabled, archived, brought back."""
    agent = sdk.agents.create("Writer", instructions="Be brief.", metadata={"team": "a"})
    assert sdk.agents.get(agent.id).instructions == "Be brief."
    assert sdk.agents.update(agent.id, instructions=None, name="Author").name == "Author"
    assert agent.id in [item.id for item in sdk.agents.each(limit=1)]
    run = sdk.runs.create_and_wait("hello", agent_id=agent.id)
    assert (run.agent_id, run.output) == (agent.id, "You said: hello")
    assert sdk.agents.disable(agent.id).status == "disabled"
    with pytest.raises(e.AgentDisabledError):
        sdk.runs.create("hello", agent_id=agent.id)
    assert sdk.agents.enable(agent.id).status == "enabled"
    with pytest.raises(e.AgentNotArchivedError):
        sdk.agents.unarchive(agent.id)
    sdk.agents.archive(agent.id)
    assert sdk.agents.get(agent.id).status == "archived"
    assert sdk.agents.unarchive(agent.id).status != "archived"


def test_an_end_user_lives_and_is_bounded(sdk):
    """Made once, changed, found under any spelling of an id, removed."""
    name = f"cust {uuid.uuid4().hex}?#"
    user = sdk.users.create(name, email="a@example.com", run_limit=0)
    with pytest.raises(e.UserExistsError):
        sdk.users.create(name)
    with pytest.raises(e.EndUserRunLimitError):
        sdk.runs.create("hello", user_id=name)
    assert sdk.users.update(name, run_limit=None, company="Acme").run_limit is None
    assert sdk.users.get(name).company == "Acme"
    assert sdk.runs.create("hello", user_id=name).user_id == name
    assert user.id in [item.id for item in sdk.users.each(limit=1)]
    sdk.users.delete(name)
    with pytest.raises(e.NotFoundError):
        sdk.users.get(name)


async def test_a_decision_elsewhere_ends_an_async_wait_at_once(dev, sdk):
    """The long poll is answered when the run goes on, not at the next look of a poller."""
    call = {"name": "send_email", "input": {"to": "a@acme.com", "subject": "", "body": ""}}
    async with AsyncClient(base_url=dev.url, api_key=KEY) as api:
        run = await api.runs.create(
            "go",
            human_in_the_loop=True,
            permission_mode="approval",
            metadata={"script": [{"tool_calls": [call]}, {"text": "Done."}]},
        )
        asked = []

        async def approve(request):
            asked.append((request.request_id, time.monotonic()))
            return True

        done = await api.runs.wait(run.id, on_approval=approve, timeout=20)
        assert (done.output, len(asked)) == ("Done.", 1)
        assert time.monotonic() - asked[0][1] < 2
        assert [gate.decided_by is not None for gate in await api.runs.permissions(run.id)] == [
            True
        ]
