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


def test_a_link_shows_a_run_until_it_is_revoked(sdk):
    """The same link each time; without it nothing is shown."""
    run = sdk.runs.create_and_wait("hello")
    link = sdk.runs.share(run.id)
    assert sdk.runs.share(run.id) == link
    assert link.share_url.endswith(f"/v1/shared/{link.share_token}")
    assert link.share_token not in repr(link)
    sdk.runs.unshare(run.id)
    assert sdk.runs.get(run.id).share_token is None


def test_lists_tell_whether_they_have_changed(sdk):
    """Counts of one scope, and what its agents do."""
    user = f"u_{uuid.uuid4().hex}"
    run = sdk.runs.create_and_wait("hello", user_id=user)
    found = sdk.runs.check(user_id=user)
    assert (found.total_count, found.latest_run_id, found.awaiting_count) == (1, run.id, 0)
    (agent,) = sdk.runs.activity(user_id=user)
    assert (agent.agent_id, [one.id for one in agent.runs]) == (run.agent_id, [run.id])


def test_settings_are_read_and_changed(sdk):
    """What is not given stays; None clears a cap."""
    changed = sdk.settings.update(per_end_user_run_limit=1000)
    assert (changed.per_end_user_run_limit, changed.require_end_user_id) == (1000, False)
    assert sdk.settings.update(per_end_user_run_limit=None) == sdk.settings.get()
    assert sdk.settings.get().per_end_user_run_limit is None
    with pytest.raises(TypeError, match="nonsense"):
        sdk.settings.update(nonsense=True)


async def test_what_happened_is_told_by_both_clients(dev, sdk):
    """Events, the audit trail and the month's use, in pages."""
    user = f"u_{uuid.uuid4().hex}"
    call = {"name": "send_email", "input": {"to": "a@x.com", "subject": "Hi", "body": "b"}}
    run = sdk.runs.create_and_wait(
        "go",
        user_id=user,
        human_in_the_loop=True,
        permission_mode="approval",
        metadata={"script": [{"tool_calls": [call]}, {"text": "end"}]},
        on_approval=lambda _: True,
    )
    events = [event.type for event in sdk.events.each(run_id=run.id, limit=1)]
    assert events == ["run.completed", "run.resumed", "run.awaiting_input", "run.started"]
    assert [event.type for event in sdk.events.list(type="run.completed", run_id=run.id)] == [
        "run.completed"
    ]
    (used,) = sdk.usage.end_users(user_id=user)
    assert (used.user_id, used.runs_used) == (user, 1)
    async with AsyncClient(base_url=dev.url, api_key=KEY) as other:
        trail = [entry async for entry in other.audit.each(run_id=run.id, limit=1)]
    assert [entry.action for entry in trail] == ["tool_start", "decision"]
    assert trail[0].details["digest"] == trail[1].details["digest"]
    assert (trail[0].by, str(trail[1].by).partition(":")[0]) == (None, "key")
