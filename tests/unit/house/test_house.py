"""Sizes, names and traces: the house rules that no linter counts."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import signoff

APPLICATION = ("signoff", "service", "workers", "webhooks")
BANNED_NAMES = frozenset(
    [
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "manager",
        "base",
        "core",
        "misc",
        "data",
        "info",
        "handler",
        "handlers",
    ]
)
# Whether the store was checked, and what has been read when an exception ends the reading.
MUTABLE = {"Startup", "_Answer"}
MAX_LINES = 500
MAX_TEST_LINES = 800
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _modules(texts: dict[Path, str], *folders: str) -> Iterator[tuple[Path, str]]:
    for path, text in texts.items():
        if path.suffix == ".py" and (not folders or path.parts[0] in folders):
            yield path, text


def _functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _positional(function: Function) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_files_are_short(texts: dict[Path, str]) -> None:
    """No module is longer than 500 lines, no test module than 800."""
    long = {
        str(path): lines
        for path, text in _modules(texts)
        if (lines := text.count("\n")) > (MAX_TEST_LINES if path.parts[0] == "tests" else MAX_LINES)
    }
    assert long == {}


def test_functions_are_short(texts: dict[Path, str]) -> None:
    """No function spans more than 60 lines."""
    long = {
        f"{path}:{function.name}": lines
        for path, text in _modules(texts)
        for function in _functions(text)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_functions_take_few_positional_arguments(texts: dict[Path, str]) -> None:
    """No function of the application takes more than five arguments by position."""
    many = {
        f"{path}:{function.name}": count
        for path, text in _modules(texts, *APPLICATION)
        for function in _functions(text)
        if (count := _positional(function)) > MAX_POSITIONAL
    }
    assert many == {}


def test_module_names_say_what_they_own(texts: dict[Path, str]) -> None:
    """No module or package is called utils, helpers, base and the like."""
    vague = [
        str(path)
        for path, _ in _modules(texts, *APPLICATION, "examples", "benchmarks")
        if BANNED_NAMES.intersection(
            word for part in path.with_suffix("").parts for word in part.lower().split("_")
        )
    ]
    assert vague == []


def test_modules_say_in_a_docstring_what_they_own(texts: dict[Path, str]) -> None:
    """Every module of the application that holds code opens with a docstring."""
    silent = [
        str(path)
        for path, text in _modules(texts, *APPLICATION)
        if text.strip() and ast.get_docstring(ast.parse(text)) is None
    ]
    assert silent == []


def test_tests_say_what_holds(texts: dict[Path, str]) -> None:
    """Every test has a docstring."""
    silent = [
        f"{path}:{function.name}"
        for path, text in _modules(texts, "tests")
        if path.name.startswith("test_")
        for function in _functions(text)
        if function.name.startswith("test_") and ast.get_docstring(function) is None
    ]
    assert silent == []


def test_records_are_frozen(texts: dict[Path, str]) -> None:
    """Dataclasses are frozen and have slots; the two that change say why in their own words."""
    loose = {
        node.name
        for _, text in _modules(texts, *APPLICATION)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for decorator in map(ast.unparse, node.decorator_list)
        if decorator.startswith("dataclass")
        and not {"frozen=True", "slots=True"} <= set(re.findall(r"\w+=\w+", decorator))
    }
    assert loose == MUTABLE


def test_log_lines_are_an_event_and_its_fields(texts: dict[Path, str]) -> None:
    """Each line is one stable word and ``name=%`` fields: what varies is never the message."""
    line = re.compile(r"[a-z]+(?:_[a-z]+)*(?: [a-z_]+=(?:%[sd]|[a-z_]+))*")
    odd = [
        f"{path}:{node.lineno}"
        for path, text in _modules(texts, *APPLICATION)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "logger"
        for found in node.args[node.func.attr == "log" :][:1]
        if not (
            isinstance(found, ast.Constant)
            and isinstance(found.value, str)
            and line.fullmatch(found.value)
        )
    ]
    assert odd == []


def test_lua_scripts_document_their_keys(texts: dict[Path, str]) -> None:
    """Every script opens with a comment, which is where KEYS, ARGV and the result are described."""
    silent = [
        str(path)
        for path, text in texts.items()
        if path.suffix == ".lua" and not text.startswith("--")
    ]
    assert silent == []


def test_changelog_names_the_package_version(texts: dict[Path, str]) -> None:
    """The newest released section of the changelog is the version of the package."""
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", texts[Path("CHANGELOG.md")], re.MULTILINE)
    assert versions[:1] == [signoff.__version__]


def test_no_path_of_a_machine_is_written_down(root: Path, texts: dict[Path, str]) -> None:
    """No file names the folder that it was written in, here or on a build machine."""
    places = [r"(?<![\w.])/(?:work|farm|builds|workspace)/"]
    if len(root.parts) > 2:
        places.append(re.escape(str(root)) + r"\b")
    place = re.compile("|".join(places))
    assert [str(path) for path, text in texts.items() if place.search(text)] == []


def test_no_registry_is_named(texts: dict[Path, str]) -> None:
    """No file names a package registry's host: where packages come from is the user's choice."""
    host = re.compile(
        r"pypi[.]org|python[h]osted|registry[.]npmjs|deb[.]debian|proxy[.]golang|gh[c]r[.]io|quay[.]io"
    )
    assert [str(path) for path, text in texts.items() if host.search(text)] == []


def test_hooks_are_local(root: Path) -> None:
    """Pre-commit hooks fetch nothing: every one runs a program of the checkout's own venv."""
    hooks: dict[str, Any] = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())
    assert {repository["repo"] for repository in hooks["repos"]} == {"local"}
    assert {hook["language"] for repository in hooks["repos"] for hook in repository["hooks"]} == {
        "system"
    }
