"""The text of rules: names, paths, arguments and servers; and what is suggested for a call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.canonical import digest
from signoff.domain.error import InvalidFieldError
from signoff.domain.glob import Glob, Match, fold
from signoff.domain.pathform import path_forms, path_pattern
from signoff.domain.pattern import pattern_of
from signoff.domain.rule import Rule, Verdict
from signoff.domain.rulecheck import KnownTool, check_rule
from signoff.domain.subject import Subject
from signoff.domain.suggestion import suggested_rules
from signoff.paths import resolve_path
from signoff.subject import READERS, subject
from signoff.tooldef import tool

texts = st.text(max_size=40) | st.text(alphabet="aB_*(),=:/.~\\ '\"mcp", max_size=40)


@tool(patterns="shell")
def Bash(command: str, cwd: str = ".") -> str:  # noqa: N802 - the name models know
    return command + cwd


@tool(patterns="path")
def Write(path: str, content: str = "") -> str:  # noqa: N802 - the name models know
    return path + content


@tool
def send(to: str, n: int = 1, urgent: bool = False) -> str:
    return f"{to}{n}{urgent}"


def rule(text: str, effect: str = "allow") -> Rule:
    return Rule(id=1, tool=text, effect=Verdict(effect), user_id=None, source="api", created_ms=0)


def call(name: str, **given: Any) -> Subject:
    return subject(name, {"Bash": Bash, "Write": Write, "send": send}.get(name), given)


def covers(text: str, effect: str, subject_: Subject) -> Match:
    return rule(text, effect).covers(subject_, None)


@given(texts, texts, texts)
def test_every_text_is_a_pattern_or_none(text: str, name: str, value: str) -> None:
    """Reading, checking and comparing are total, whatever a rule says."""
    pattern_of(text)
    pattern_of(f"{name}({text})")
    for effect in Verdict:
        try:
            check_rule(text, effect, {"Bash": KnownTool(kind="shell"), "send": None})
        except InvalidFieldError:
            continue
    for kind in ("shell", "path", None):
        found = Subject("Bash", {"command": value}, kind=kind, parameter="command", readers=READERS)
        for word in ("allow", "ask", "deny"):
            rule(f"Bash({text})", word).covers(found, None)


@given(st.text(alphabet="ab*", max_size=12), st.text(alphabet="ab", max_size=12))
def test_a_glob_is_what_its_stars_say(pattern: str, text: str) -> None:
    """The same as a regular expression of it, without one."""
    import re  # noqa: PLC0415

    expected = re.fullmatch(pattern.replace("*", ".*"), text) is not None
    assert Glob(tuple(pattern.split("*"))).matches(text) is expected


def test_stars_cost_no_time() -> None:
    """Many stars against a long text end at once."""
    assert not Glob(("a",) * 400).matches("a" * 399 + "b" * 10_000)
    found = path_pattern("/**" * 50 + "/x")
    assert found is not None
    forms = path_forms("/a" * 1000, lambda path: path)
    assert not found.allows(forms)


@pytest.mark.parametrize(
    ("text", "effect", "tool_name", "match"),
    [
        ("mcp__gh__*", "allow", "mcp__gh__get", Match.YES),
        ("mcp__gh__get_*", "allow", "mcp__gh__get_issue", Match.YES),
        ("mcp__gh__*", "allow", "mcp__gh_evil__get", Match.NO),
        ("mcp__gh__*", "allow", "mcp__gh__evil__get", Match.NO),
        ("mcp__gh__*", "allow", "mcp__gh__", Match.NO),
        ("mcp__gh__*", "allow", "MCP__gh__get", Match.NO),
        ("mcp__*", "deny", "mcp__gh__get", Match.YES),
        ("mcp__gh", "deny", "mcp__gh__get", Match.YES),
        ("mcp__gh", "allow", "mcp__gh__get", Match.NO),
        ("*", "ask", "anything", Match.YES),
        ("send", "deny", "Send", Match.NO),
        ("send", "deny", "send ", Match.NO),
    ],
)
def test_names_are_exact_and_servers_whole(
    text: str, effect: str, tool_name: str, match: Match
) -> None:
    """No case, no look-alikes; a star never crosses from one server into another."""
    assert covers(text, effect, Subject(tool_name, {})) is match


@pytest.mark.parametrize(
    ("text", "given_", "allowed", "denied"),
    [
        ("to=*@acme.com", {"to": "a@acme.com"}, True, Match.YES),
        ("to=*@acme.com", {"to": "a@acme.com.evil.com"}, False, Match.NO),
        ("to=*@acme.com", {"to": "x@evil.com,a@acme.com"}, False, Match.YES),
        ("to=*@acme.com", {"to": "x@evil.com\na@acme.com"}, False, Match.YES),
        ("to=*@acme.com", {"to": "A@ACME.com"}, False, Match.YES),
        ("to=*@acme.com", {"to": "a@acme.com "}, False, Match.YES),
        ("to=*@acme.com", {}, False, Match.NO),
        ("to=*", {"to": "anything, at all"}, True, Match.YES),
        ("n=1", {"to": "a"}, False, Match.YES),  # an omitted one is its default
        ("n=1,to=a", {"to": "a", "n": 1}, True, Match.YES),
        ("n=1,to=a", {"to": "b", "n": 1}, False, Match.NO),
        ("urgent=true", {"to": "a", "urgent": True}, True, Match.YES),
        ("to=*@acme.com", {"to": ["x", "a@acme.com"]}, False, Match.YES),
        ("to=a\\,b", {"to": "a,b"}, True, Match.YES),
    ],
)
def test_arguments(text: str, given_: dict[str, Any], allowed: bool, denied: Match) -> None:
    """Exactly to allow, however it is spelled to deny."""
    found = call("send", **given_)
    assert (covers(f"send({text})", "allow", found) is Match.YES) is allowed
    assert covers(f"send({text})", "deny", found) is denied


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with what rules are about, a secret beside it, and links between them."""
    root = Path(os.path.realpath(tmp_path))
    for name in ("data/sub", "secret", "data-evil"):
        (root / name).mkdir(parents=True)
    (root / "secret/key").write_text("k")
    (root / "data/file").symlink_to(root / "secret/key")
    (root / "data/dir").symlink_to(root / "secret")
    (root / "data/chain").symlink_to(root / "data/dir")
    (root / "data/new").symlink_to(root / "secret/not-yet")
    (root / "data/loop").symlink_to(root / "data/loop")
    (root / "alias").symlink_to(root / "secret")
    return root


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("data/a", True), ("data/sub/a", True), ("data/sub/../a", True), ("data/./a", True),
        ("data", False), ("data/", False), ("data/../secret/key", False), ("secret/key", False),
        ("data/file", False), ("data/dir/key", False), ("data/chain/key", False),
        ("data/new", False), ("data/loop", False), ("data/loop/x", False), ("data-evil/a", False),
        ("Data/a", False), ("data/a\0", False), ("data/a.", False), ("data/a ", False),
        ("data/%2e%2e/secret", False), ("data/e\u0301", False), ("data/\u202ea", False),
        ("data//a", False), ("data/$HOME", False), ("data\\a", False),
    ],
)  # fmt: skip
def test_an_allowed_path_is_where_it_really_leads(tree: Path, path: str, allowed: bool) -> None:
    """Links, dots, case and odd spellings never lead out of an allowed folder."""
    found = call("Write", path=f"{tree}/{path}", content="x")
    assert (covers(f"Write({tree}/data/**)", "allow", found) is Match.YES) is allowed


@pytest.mark.parametrize(
    "path",
    ["secret/key", "secret/../secret/key", "data/file", "data/dir/key", "data/chain/key",
     "data/new", "alias/key", "SECRET/key", "secret/key.", "secret//key", "data/../secret/x",
     "secret/key\0", "secret/%6bey"],
)  # fmt: skip
def test_a_denied_path_is_denied_through_every_spelling_and_link(tree: Path, path: str) -> None:
    """Also when the rule itself names a link to the folder."""
    found = call("Write", path=f"{tree}/{path}")
    assert covers(f"Write({tree}/secret/**)", "deny", found) is Match.YES
    if "SECRET" not in path:
        assert covers(f"Write({tree}/alias/**)", "deny", found) is Match.YES


@pytest.mark.parametrize(
    ("pattern", "path", "allowed", "denied"),
    [
        ("notes/**", "notes/a", True, Match.YES),
        ("./**", "a", True, Match.YES),
        ("notes/*", "notes/a/b", False, Match.NO),
        ("notes/**", "notes/../x", False, Match.MAYBE),
        ("/srv/**", "srv/a", False, Match.NO),
        ("/srv/**", "../srv/a", False, Match.MAYBE),
        ("/srv/**", "~/a", False, Match.MAYBE),
        ("/srv/**", "/proc/self/root/srv/a", False, Match.YES),
        ("**/.env", "/srv/app/.env", False, Match.YES),
        ("/srv/*.md", "/srv/a.md", True, Match.YES),
    ],
)
def test_relative_paths_and_stars(pattern: str, path: str, allowed: bool, denied: Match) -> None:
    """A relative path is compared as such; what may climb out of its folder may be anywhere."""
    found = call("Write", path=path)
    assert (covers(f"Write({pattern})", "allow", found) is Match.YES) is allowed
    assert covers(f"Write({pattern})", "deny", found) is denied


@given(st.text(max_size=30) | st.text(alphabet="/.~%a \\", max_size=30))
def test_paths_are_total_and_exact_ones_are_plain(text: str) -> None:
    """Whatever a model sends has forms, and an exact one has no dots left."""
    forms = path_forms(text, resolve_path)
    if forms.exact is not None:
        assert ".." not in forms.exact.split("/")
        assert forms.exact.isprintable()
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npm install express", "Bash(npm install:*)"),
        ("git commit -m x", "Bash(git commit:*)"),
        ("git push --force", "Bash(git push:*)"),
        ("rm file.txt", "Bash(rm file.txt:*)"),
        ("python3 script.py", "Bash(python3 script.py:*)"),
        ("sed -i s/a/b/ x.txt", "Bash(sed -i:*)"),
        ("pytest", None),
        ("echo hi", None),
        ("cat a", None),
        ("grep a b", None),
        ("FOO=1 npm run build", None),
        ("NODE_ENV=prod npm run build", None),
        ("cd x && npm install", None),
        ("cat a > b", None),
        ("ls $(x)", None),
        ("for i in a; do ls x; done", None),
        ("make 2> /dev/null", None),
        ("find . -delete", None),
        ("sudo apt install", None),
        ("bash -c ls", None),
        ("env git status", None),
        ("python3 -c pass", None),
        ("xargs rm", None),
        ("git 'a b'", None),
        ("npm run test --x", "Bash(npm run:*)"),
        ("uv run pytest -q", "Bash(uv run pytest:*)"),
        ("uv run bash x.sh", None),
        ("uv run --with x y", None),
        ("docker exec -it c ls", None),
        ("npm run", "Bash(npm run:*)"),
        ("npm exec x", "Bash(npm exec x:*)"),
        ("uv run", None),
    ],
)
def test_suggestions_for_commands(command: str, expected: str | None) -> None:
    """The first two words as a prefix; none that could not cover the command as it is shown."""
    found = suggested_rules(call("Bash", command=command))
    assert found == ([] if expected is None else [{"tool": expected, "effect": "allow"}])


def test_another_argument_of_a_shell_tool_is_never_allowed_by_its_command() -> None:
    """A folder or an environment changes what a command does."""
    assert covers("Bash(git status:*)", "allow", call("Bash", command="git status")) is Match.YES
    other = call("Bash", command="git status", cwd="/")
    assert covers("Bash(git status:*)", "allow", other) is Match.NO
    assert covers("Bash(git status:*)", "deny", other) is Match.YES


def test_suggestions_for_paths_and_other_tools(tree: Path) -> None:
    """A path's own folder, nothing through a link, the tool where nothing else is shown."""

    def first(found: Subject) -> str | None:
        rules = suggested_rules(found)
        return rules[0]["tool"] if rules else None

    assert first(call("Write", path=f"{tree}/data/a")) == f"Write({tree}/data/**)"
    assert first(call("Write", path="notes/a")) == "Write(notes/**)"
    assert first(call("Write", path="a")) == "Write(./**)"
    assert first(call("Write", path="/a")) is None
    assert first(call("Write", path=f"{tree}/data/dir/key")) is None
    assert first(call("Write", path="../a")) is None
    assert first(call("send", to="a")) == "send"
    assert first(Subject("mcp__s__t", {})) == "mcp__s__t"


@given(st.text(max_size=30), st.sampled_from(["Bash", "Write"]))
def test_a_suggestion_covers_what_it_was_made_for(text: str, name: str) -> None:
    """At most one, stated as a pattern, and never the bare tool."""
    found = call(name, **{"command" if name == "Bash" else "path": text})
    for item in suggested_rules(found):
        assert item["tool"].startswith(f"{name}(")
        assert covers(item["tool"], "allow", found) is Match.YES


def test_a_pattern_for_a_tool_of_another_kind_is_asked_and_never_allowed() -> None:
    """A rule that was stored before its tool was loaded may not mean what it says."""
    found = call("send", to="a")
    assert covers("send(git status:*)", "allow", found) is Match.NO
    assert covers("send(git status:*)", "deny", found) is Match.MAYBE
    assert digest("send", {"to": "a"})
