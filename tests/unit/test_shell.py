"""Rules about commands: what an allow never covers, what a deny always does, and what bash did."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from signoff.domain.glob import Match
from signoff.domain.pattern import pattern_of
from signoff.domain.rule import Rule, Verdict, denied_by
from signoff.domain.shellcode import literal_words
from signoff.domain.shellpattern import ShellPattern
from signoff.domain.subject import Subject
from signoff.shell import read_shell
from signoff.subject import READERS

ROOT = Path(__file__).resolve().parents[2]
STUB = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" >> "$LEDGER"
printf '\\n' >> "$LEDGER"
"""


def shell(text: str) -> ShellPattern:
    found = pattern_of(f"Bash({text})")
    assert found is not None
    assert found.shell is not None
    return found.shell


def allows(pattern: str, command: str) -> bool:
    return shell(pattern).allows(read_shell(command))


def forbids(pattern: str, command: str) -> Match:
    return shell(pattern).forbids(read_shell(command))


SEPARATORS = [
    "; rm x",
    ";rm x",
    "&& rm x",
    "&&rm x",
    "",
    "",
    " rm x",
    "",
    " rm x",
    "& rm x",
    "&",
    "& ",
    "\nrm x",
    "\n",
    "\r\nrm x",
    ";",
    "&& \\\nrm x",
    ";;",
    "\n#c\nrm x",
    "; { rm x; }",
    "; (rm x)",
    "; for i in a; do rm x; done",
    "; coproc rm x",
    ";; rm x",
    "; if true; then rm x; fi",
    "; while rm x; do :; done",
    "; case a in a) rm x;; esac",
]
SEPARATORS = [item for item in dict.fromkeys(SEPARATORS) if item and item.strip() != "rm x"]
PIPES = ["| rm x", "|& rm x", "|| rm x", "|rm x", "||rm x"]
SUBSTITUTIONS = [
    "$(rm x)", "`rm x`", '"$(rm x)"', '"`rm x`"', "<(rm x)", ">(rm x)", "$((1+1))", "${x}", "$x",
    "${x@P}", '"${x:-$(rm x)}"', "$'a'", '$"a"', "{a,b}", "{1..3}", "~", "~root", "a=~", "*", "?",
    "[a]", "\\a", "!!", '"!x"', "!rm", "^a^b", "a:~", '"\\$x"',
]  # fmt: skip
REDIRECTS = [
    "> x", ">x", ">> x", "< x", "2> x", "2>&1", "&> x", ">& x", ">| x", "<> x", "<< E\nrm\nE",
    "<<< x", "1>&-", "> /dev/tcp/1/2", "{fd}>x", "<&0",
]  # fmt: skip
PREFIXES = [
    "X=1 ", "PATH=. ", "GIT_SSH_COMMAND=x ", "a[0]=1 ", "env ", "sudo ", "nice ", "timeout 5 ",
    "command ", "builtin ", "exec ", "xargs ", "time ", "! ", "\\", "(", "{ ", "if ", "coproc ",
    "eval ", "nohup ", "\n; ", "# ", "./", "/bin/", "> x ", "$x", "<x ", "a+=b ",
]  # fmt: skip
STRANGE = [
    " \u0430",
    " \u200b",
    " \uff41",
    "\u00a0x",
    " \u202e",
    "\r",
    " \x1b[2J",
    "\0",
    "\t x",
    "\x0b",
]


@pytest.mark.parametrize(
    "tail",
    [f" {item}" for item in dict.fromkeys((*SEPARATORS, *PIPES, *SUBSTITUTIONS, *REDIRECTS))],
)
def test_nothing_behind_an_allowed_prefix_is_allowed_but_words(tail: str) -> None:
    """Separators, pipes, substitutions and redirects, with a space before them or without."""
    assert allows("git status:*", "git status")
    assert not allows("git status:*", f"git status{tail}")
    if not tail[1].isalpha():
        assert not allows("git status:*", f"git status{tail[1:]}")


@pytest.mark.parametrize("head", PREFIXES)
def test_nothing_before_an_allowed_prefix_is_allowed(head: str) -> None:
    """Assignments, wrappers, keywords, other paths to the same name."""
    assert not allows("git status:*", f"{head}git status")


@pytest.mark.parametrize("strange", STRANGE)
def test_characters_that_are_not_plain_are_not_allowed(strange: str) -> None:
    """Look-alikes, invisible ones, other spaces and controls, as a word or glued to one."""
    assert not allows("git status:*", f"git status{strange}")
    assert not allows("git status:*", f"git{strange}status")


@pytest.mark.parametrize(
    ("pattern", "command", "allowed"),
    [
        ("git commit:*", "git commit -m 'a; b && c > d $(e)'", True),
        ("git commit:*", 'git commit -m "a (b)"', True),
        ("git commit:*", "git 'commit' -m x", True),
        ("git log:*", "git log HEAD~3 --format=%h", True),
        ("git log:*", "git logout", False),
        ("git:*", "gitx", False),
        ("git:*", "git-evil", False),
        ("npm run build", "npm run build", True),
        ("npm run build", "npm run build --x", False),
        ("npm run build", "echo npm run build", False),
        ("npm run build", "npm  run   build", True),
        ("npm run *", "npm run", True),
        ("npm run * --ci", "npm run test --ci", True),
        ("npm run * --ci", "npm run -x --ci", False),
        ("cat docs/*", "cat docs/a.md", True),
        ("cat docs/*", "cat docs/../x", False),
        ("find:*", "find . -name x", True),
        ("find:*", "find . -name x -exec rm", False),
        ("find:*", "find . -delete", False),
        ("git status:*", "git status --output=x", False),
        ("git status:*", "git status --outp=x", False),
        ("sed -i:*", "sed -i s/a/b/ x.txt", True),
        ("sed -i:*", "sed -i 1e x.txt", False),
        ("sed -i:*", "sed -i s/a/b/e x.txt", False),
        ("sort:*", "sort -ox y", False),
        ("python3 run.py:*", "python3 run.py x", True),
        ("sort:*", "sort -uo x y", False),
        ("sort:*", "sort -ru y", True),
        ("tar:*", "tar -cIid f y", False),
        ("tar:*", "tar cIf id f y", False),
        ("tar:*", "tar czf f y", True),
        ("tar xf:*", "tar xf Index.tar", True),
        ("rsync:*", "rsync -avze id a b", False),
        ("curl:*", "curl -fsSLo x u", False),
        ("curl:*", "curl -fsSL u", True),
        ("fd:*", "fd -HX rm", False),
        ("wget:*", "wget -qO x u", False),
        ("git:*", "git bisect run id", False),
        ("git:*", "git config core.pager id", False),
        ("git log:*", "git log config", True),
        ("go test:*", "go test --exec id", False),
        ("less:*", "less '+!id' x", False),
        ("vim:*", "vim x '+!id'", False),
        ("psql:*", "psql db -c x", False),
        ("valgrind ls:*", "valgrind ls", False),
    ],
)
def test_what_an_allow_states_and_no_more(pattern: str, command: str, allowed: bool) -> None:
    """Words after quote removal; options that run or write must be stated themselves."""
    assert allows(pattern, command) is allowed


@pytest.mark.parametrize(
    "command",
    [
        "rm x", "  rm x", "rm", "/bin/rm x", "'rm' x", 'r"m" x', "r''m x", "\\rm x", "r\\m x",
        "$'\\x72m' x", "$'\\162m' x", "RM x", "true; rm x", "true && rm x", "true|rm",
        "true & rm x",
        "true\nrm x", "(rm x)", "{ rm x; }", "! rm x", "X=1 rm x", "env rm x", "env -i A=1 rm x",
        "env -Srm x", "sudo -u root rm x", "nohup rm x", "nice -n 5 rm x", "timeout 5 rm x",
        "time rm x", "command rm x", "exec rm x", "xargs rm", "find . -exec rm {} +",
        "bash -c 'rm x'",
        "sh -c 'true; rm x'", "bash -c \"bash -c 'rm x'\"", "eval 'rm x'", "eval r'm' x",
        "echo $(rm x)", "echo `rm x`", 'echo "$(rm x)"', "cat <(rm x)", "f() { rm x; }; f",
        "for i in a; do rm x; done", "if rm x; then :; fi", "trap 'rm x' EXIT", "alias r='rm x'",
        "cat <<E\n$(rm x)\nE", "$empty rm x", "r\\\nm x", "/???/rm x", "/bin/r? x", "watch 'rm x'",
        "while :; do rm x; done", "case a in a) rm x;; esac", "coproc rm x", "rm>x", "rm<x",
        ">x rm", "setarch x86_64 rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "npx rm x",
        "uv run rm x", "docker exec c rm x", "docker run i sh -c 'rm x'", "kubectl exec p -- rm x",
        "ip netns exec n rm x", "git bisect run rm x", "git submodule foreach 'rm x'",
        "git -c alias.x='!rm x' x", "git rebase --exec 'rm x'", "tar -I 'rm x' f",
        "tar --checkpoint-action=exec='rm x'", "man -P 'rm x' y", "rg --pre rm x",
        "sort --compress-program=rm x", "split --filter='rm x' f", "env '-Srm x'",
        "less '+!rm x' y",
        "test -v 'a[$(rm x)]'", "printf -v 'a[$(rm x)]' y", "declare 'a[$(rm x)]=1'",
    ],
)  # fmt: skip
def test_a_deny_covers_a_command_in_every_disguise(command: str) -> None:
    """Whatever is quoted, wrapped, nested or chained is found."""
    assert forbids("rm:*", command) is Match.YES


@pytest.mark.parametrize(
    "command",
    ["$x y", "$(echo rm) x", "echo cm0geA== | base64 -d | bash", "bash x.sh", ". x.sh", "eval $x",
     "python3 -c 'x'", "{rm,x}", "r{m,} x", "if", "rm 'x", "sed '1e rm x' y",
     "vim f -c '!rm x'", "psql d -c '\\! rm'",
     "sqlite3 d '.shell rm'", "at now <<< x", "julia -e x", "a?" * 4_995, "a=(" * 3_000,
     "xargs $x", "a" * 20_000],
)  # fmt: skip
def test_what_cannot_be_read_may_be_what_a_deny_states(command: str) -> None:
    """At least asked; text that is no shell at all is known to be that."""
    assert forbids("rm:*", command) is Match.MAYBE


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "git rm x",
        "echo 'rm x'",
        "grep rm x",
        "rmdir x",
        "a=rm",
        "docker rm x",
        "git checkout -- rm",
        "git -C rm status",
        "sed -n 1,5p rm",
        "sed s/e/f/ x",
        "test -f rm",
    ],
)
def test_a_deny_leaves_other_commands_alone(command: str) -> None:
    """A word of the same text is no command."""
    assert forbids("rm:*", command) is Match.NO


@pytest.mark.parametrize(
    ("pattern", "command", "match"),
    [
        ("git push:*", "git push origin", Match.YES),
        ("git push:*", "git -C . push", Match.MAYBE),
        ("git push:*", "git pull", Match.NO),
        ("git push:*", "git $x", Match.MAYBE),
        ("git * --force", "git push origin main --force", Match.YES),
        ("git push*", "git push -f", Match.YES),
        ("*--force*", "git push --force-with-lease x", Match.YES),
        ("npm publish", "npm publish --x", Match.NO),
    ],
)
def test_how_a_deny_reads_its_words(pattern: str, command: str, match: Match) -> None:
    """A star spans words, and options may stand between them."""
    assert forbids(pattern, command) is match


@pytest.mark.parametrize(
    "command",
    ["'" * 9_001, "git " + "$(" * 4_000, ";".join(["true"] * 1_900), "<<A " * 2_400, "env " * 2_400,
     "sudo " * 60 + "x", "bash -c " * 1_200, "(" * 9_000, "x" * 200_000,
     "a?" * 4_995, "|!" * 4_995, ">@(" * 3_300, "a=(" * 3_300, "bash -c '" + "a?" * 4_990 + "'"],
)  # fmt: skip
def test_hostile_text_is_read_quickly(command: str) -> None:
    """Some ten milliseconds at most; the bound leaves room for a busy machine."""
    start = time.thread_time()
    assert not allows("git status:*", command)
    forbids("rm:*", command)
    assert time.thread_time() - start < 0.5


COMMANDS = ";".join(f"env b{n} " + "a " * 58 for n in range(78))


@pytest.mark.parametrize(
    ("rules", "call"),
    [
        ([f"Bash(x{n}:*)" for n in range(1_000)], ("Bash", "shell", COMMANDS)),
        ([f"Bash(a * a * a * a * z{n})" for n in range(300)], ("Bash", "shell", COMMANDS)),
        (["Write(" + "**/a/" * 150 + "z)"] * 300, ("Write", "path", "a/" * 2_000 + "x")),
        ([f"send(a=*{n}*y)" for n in range(300)], ("send", None, [["x"] * 1_000] * 100)),
    ],
)
def test_many_rules_and_a_large_call_are_bounded_together(rules: list[str], call: Any) -> None:
    """Each pair may be quick and all of them a minute, in which nobody else is served."""
    tool, kind, value = call
    stored = [
        Rule(id=n, tool=text, effect=Verdict.DENY, user_id=None, source="api", created_ms=0)
        for n, text in enumerate(rules)
    ]
    shown = Subject(tool, {"a": value}, kind=kind, parameter=kind and "a", readers=READERS)
    start = time.process_time()
    denied_by(shown, user_id=None, rules=stored, now_ms=1)
    assert time.process_time() - start < 5


def test_what_is_too_much_to_compare_is_denied() -> None:
    """Whoever makes a call large must not get past a deny by that."""
    path = "a/" * 2_000 + "x"
    shown = Subject("Write", {"a": path}, kind="path", parameter="a", readers=READERS)
    deny = Rule(
        id=1,
        tool="Write(" + "**/b/" * 200 + "z)",
        effect=Verdict.DENY,
        user_id=None,
        source="api",
        created_ms=0,
    )
    rules = [replace(deny, id=n) for n in range(30)]
    assert denied_by(shown, user_id=None, rules=rules[:1], now_ms=1) is None
    assert denied_by(shown, user_id=None, rules=rules, now_ms=1) is not None


pieces = st.one_of(
    st.sampled_from([*SEPARATORS, *PIPES, *SUBSTITUTIONS, *REDIRECTS, *PREFIXES, *STRANGE]),
    st.sampled_from(["'", '"', " ", "a", "-x", "'a b'", '"a"', "=", "/", "stub", "rm", "}", ")"]),
    st.text(max_size=4),
)
commands = st.lists(pieces, max_size=5).map("".join)


def test_no_text_ends_the_process() -> None:
    """Characters far beyond ASCII, which a grammar's lexer looks up where nothing is."""
    code = (
        "from signoff.shell import read_shell\n"
        "for n in range(300):\n"
        "    read_shell('\\u07c5{\\U000d9eda\\U00054f1b')\n"
        "    read_shell('x{' + chr(0x10000 + n * 3000) + ' <<E' + chr(0xe000 + n))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


@pytest.mark.parametrize("word", ["é", "日本", "\U0001f600"])
def test_what_is_beyond_ascii_is_a_part_of_words(word: str) -> None:
    """A deny sees the command around it, and no here document ends where bash ends none."""
    assert forbids("rm:*", f"true; rm {word}") is Match.YES
    assert forbids("rm:*", f"cat <<{word}\nx\n{word}\nrm a") is not Match.NO


@given(st.text(max_size=60) | commands)
def test_reading_is_total(text: str) -> None:
    """Whatever a model writes is read, and a literal reading is one that shlex shares."""
    code = read_shell(text)
    if code.literal is not None:
        assert code.literal == literal_words(text)
        assert code.parsed
        assert "\n" not in text


@given(commands, commands)
def test_an_allowed_text_is_the_prefix_and_literal_words(before: str, after: str) -> None:
    """No generated attack around an allowed prefix is allowed, but for plain further words."""
    command = f"{before}git status{after}"
    if allows("git status:*", command):
        words = literal_words(command)
        assert words is not None
        assert words[:2] == ("git", "status")
        assert not before.strip(" '\"")  # empty quotes are no text


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stubs that record how they were run, and nothing else on the path."""
    folder = tmp_path_factory.mktemp("shell")
    for name in ("git", "rm", "stub", "ls"):
        stub = folder / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    (folder / "work").mkdir()
    return folder


def executed(scratch: Path, command: str) -> tuple[list[list[str]], list[str]]:
    """What bash really ran of it, and the files that it left."""
    ledger = scratch / "ledger"
    ledger.unlink(missing_ok=True)
    subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=scratch / "work",
        env={"PATH": str(scratch / "bin"), "LEDGER": str(ledger), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=10,
        check=False,
    )
    lines = ledger.read_bytes().split(b"\0\n") if ledger.exists() else []
    ran = [[word.decode() for word in line.split(b"\0")] for line in lines if line]
    return ran, [item.name for item in (scratch / "work").iterdir()]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(st.sampled_from(
    ["a", "-s", "'a; rm x'", '"b > c"', "''", "HEAD~1", "x=y", "'$(rm x)'", "a#b", "%h", " ", "'*'",
     *SUBSTITUTIONS[:8], *SEPARATORS[:6], *REDIRECTS[:6]]), max_size=4))  # fmt: skip
def test_what_is_allowed_runs_one_command_of_exactly_its_words(
    scratch: Path, items: list[str]
) -> None:
    """A real bash with recording stubs: one program, the literal words, and no file."""
    command = " ".join(["git status", *items])
    assume(allows("git status:*", command))
    ran, left = executed(scratch, command)
    assert ran == [list(literal_words(command) or ())], json.dumps(command)
    assert left == []


@pytest.mark.parametrize(
    "tail", ["; rm x", "&& rm x", "$(rm x)", "\nrm x", "| rm", "> file", "`rm x`"]
)
def test_what_is_refused_would_have_done_more(scratch: Path, tail: str) -> None:
    """The same executor shows what each attack does when nobody stops it."""
    command = f"git status {tail}"
    assert not allows("git status:*", command)
    ran, left = executed(scratch, command)
    assert len(ran) > 1 or left
    for name in left:
        (scratch / "work" / name).unlink()
