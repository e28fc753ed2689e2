"""MCP servers of the settings: what is taken, what is refused, and whose name is whose."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import SettingsError
from signoff.mcpserver import full_name, read_servers, server_of

SETTING = "SIGNOFF_MCP_SERVERS"
NAMES = st.from_regex(r"[a-z0-9_-]{1,8}", fullmatch=True)


def read(value: Any):
    return read_servers(json.dumps(value), setting=SETTING)


def test_commands_and_addresses_are_read():
    """With their defaults; what may hold secrets is not shown."""
    found = read(
        {
            "files": {
                "command": "files-server",
                "args": ["--key", "s3cret"],
                "env": {"K": "s3cret"},
            },
            "crm_eu": {
                "url": "https://crm.example.com/mcp",
                "headers": {"Authorization": "Bearer s3cret"},
                "trusted": True,
                "timeout": 5,
                "tools": ["find"],
            },
        }
    )
    files, crm = found["files"], found["crm_eu"]
    assert (files.command, files.args, files.env) == (
        "files-server",
        ("--key", "s3cret"),
        {"K": "s3cret"},
    )
    assert (files.trusted, files.timeout_s, files.tools) == (False, 60.0, None)
    assert (crm.url, crm.trusted, crm.timeout_s, crm.tools) == (
        "https://crm.example.com/mcp",
        True,
        5.0,
        ("find",),
    )
    assert "s3cret" not in repr(found)
    assert read_servers(None, setting=SETTING) == {}


@pytest.mark.parametrize(
    "servers",
    [
        [],
        "x",
        {"a": None},
        {"a": {}},
        {"a": {"command": "x", "url": "https://x"}},
        {"a": {"command": ""}},
        {"a": {"command": ["x"]}},
        {"a": {"command": "x", "args": "y"}},
        {"a": {"command": "x", "env": {"A=B": "c"}}},
        {"a": {"command": "x", "headers": {}}},
        {"a": {"command": "x", "odd": 1}},
        {"a": {"command": "x", "trusted": "yes"}},
        {"a": {"command": "x", "timeout": 0}},
        {"a": {"command": "x", "timeout": True}},
        {"a": {"command": "x", "tools": [1]}},
        {"a": {"url": "ftp://x"}},
        {"a": {"url": "https://u:p@x"}},
        {"a": {"url": "https://x:99999"}},
        {"a": {"url": "https://x/ y"}},
        {"a": {"url": "https://x", "cwd": "/"}},
        {"a": {"url": "https://x", "headers": {"A": "b\r\nC: d"}}},
        {"a": {"url": "https://x", "headers": {"A b": "c"}}},
        {"A": {"command": "x"}},
        {"a__b": {"command": "x"}},
        {"a_": {"command": "x"}},
        {"_a": {"command": "x"}},
        {"": {"command": "x"}},
        {"a\n": {"command": "x"}},
        {"a" * 33: {"command": "x"}},
        {f"a{n}": {"command": "x"} for n in range(65)},
    ],
)
def test_what_cannot_be_used_is_refused_without_repeating_it(servers):
    """The message names the setting, and never a value."""
    with pytest.raises(SettingsError, match=SETTING) as caught:
        read(servers)
    assert caught.value.field == SETTING
    assert "u:p" not in caught.value.message


@given(st.dictionaries(NAMES, st.dictionaries(st.text(), st.text() | st.integers()), max_size=3))
def test_reading_is_total(servers):
    """Servers, or an error of ours."""
    try:
        found = read(servers)
    except SettingsError:
        return
    assert found.keys() == servers.keys()


@given(NAMES, st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True), NAMES)
def test_no_two_servers_have_a_tool_of_the_same_name(server, tool, other):
    """Whatever underscores are in the parts: a full name has one server."""
    name = full_name(server, tool)
    try:
        read({server: {"command": "x"}})
    except SettingsError:
        return
    assert name is not None
    assert server_of(name) == server
    assert other == server or server_of(name) != other


@pytest.mark.parametrize("tool", ["", "a b", "a.b", "ä", "a\n", "a" * 64, "a\u200b"])
def test_a_name_that_no_tool_can_have_is_none(tool):
    """It is never bent into one."""
    assert full_name("files", tool) is None


@pytest.mark.parametrize(
    "name", ["send_email", "mcp__files", "mcp__files__", "mcp__A__b", "mcp____b"]
)
def test_other_names_belong_to_no_server(name):
    """Also those that only begin like one."""
    assert server_of(name) is None
