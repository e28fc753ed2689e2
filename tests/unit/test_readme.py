"""What the README and the documents say exists: commands, flags, paths, names, links, codes."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from service.api.table import root_routes, surface_routes
from service.context import NATIVE
from service.errors import STATUS
from signoff.cli import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
PAGES = [README, *sorted(REPOSITORY.glob("docs/*.md"))]
DECISIONS = sorted(REPOSITORY.glob("docs/decisions/*.md"))
API = REPOSITORY / "docs" / "api.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVER_ERROR = 500


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for name, text in FENCE.findall(page.read_text()) if name in languages]


def shell_commands(page: Path) -> list[list[str]]:
    """The words of each command in the page's shell blocks, without assignments in front."""
    found = []
    for block in blocks(page, "sh"):
        pending = ""
        for line in block.replace("\\\n", " ").splitlines():
            pending += line + "\n"
            try:
                words = shlex.split(pending, comments=True)
            except ValueError:  # a quoted text goes on in the next line
                continue
            pending = ""
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
                words.pop(0)
            if words:
                found.append(words)
        assert pending == "", page
    return found


def routes() -> set[tuple[str, str]]:
    """Every (method, path) that the service has, with the native prefix."""
    native = [("/v1" + route.path, route.methods) for route in surface_routes(NATIVE)]
    root = [(route.path, route.methods) for route in root_routes()]
    return {
        (method, path)
        for path, methods in native + root
        for method in methods or ()
        if method != "HEAD"
    }


def test_the_commands_of_the_readme_are_read_whole():
    """The reader of shell blocks below finds what is there; else the other tests prove nothing."""
    found = shell_commands(README)
    assert [words[0] for words in found].count("curl") == 2
    assert ["make", "demo"] in found
    assert any(words[0].endswith("signoff") for words in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page):
    """Each `make` target that a page names is in the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for words in shell_commands(page) if words[0] == "make"}
    named |= set(re.findall(r"`make ([a-z]+)`", page.read_text()))
    assert named <= targets


def signoff_arguments(words: list[str]) -> list[str] | None:
    if words[0].rpartition("/")[2] == "signoff":
        return words[1:]
    if words[:3] == ["docker", "compose", "run"]:
        return words[words.index("service") + 1 :]
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_flags_exist(page):
    """Each `signoff` command line of a page is accepted by the command's own parser."""
    spoken = [words for words in map(signoff_arguments, shell_commands(page)) if words]
    spoken += [text.split()[:1] for text in re.findall(r"`signoff ([a-z][^`]*)`", page.read_text())]
    for command, *arguments in spoken:
        assert command in COMMANDS
        if arguments:
            parser = argparse.ArgumentParser(exit_on_error=False)
            importlib.import_module(f"signoff.cli.{command}").configure(parser)
            parser.parse_args(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_snippets_compile_and_import_what_exists(page):
    """Each Python snippet compiles, and every name that it imports is there."""
    for text in blocks(page, "python"):
        tree = ast.parse(text, page.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_examples_are_json(page):
    """Each JSON example can be parsed."""
    for text in blocks(page, "json"):
        json.loads(text)


def test_requests_of_the_readme_reach_a_route():
    """Each curl of the README has JSON for a body and a path that the service serves."""
    known = {path for method, path in routes() if method == "POST"}
    curls = [words for words in shell_commands(README) if words[0] == "curl"]
    for words in curls:
        json.loads(words[words.index("-d") + 1])
        assert words[1].partition(":8000")[2] in known


@pytest.mark.parametrize(
    "page", [*PAGES, *DECISIONS], ids=lambda page: f"{page.parent.name}/{page.name}"
)
def test_links_lead_somewhere(page):
    """Each relative link names a file, and each anchor a heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


def test_every_endpoint_is_documented_and_every_documented_one_exists():
    """The table of docs/api.md and the service's routes are the same set."""
    table = re.findall(r"`(GET|POST|PATCH|DELETE|PUT) (/[^`]*)`", API.read_text())
    rows = [(method, path) for method, path in table if "…" not in path and "/1/" not in path]
    assert set(rows) == routes()


def test_every_refusal_is_documented():
    """Each code that a client can see stands in docs/api.md beside its status."""
    text = API.read_text()
    for code, status in STATUS.items():
        if status < SERVER_ERROR:
            line = rf"^\| {status} \|.*`{code}`"
            assert re.search(line, text, re.MULTILINE), (status, code)
