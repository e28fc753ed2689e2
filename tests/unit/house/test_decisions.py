"""The pages of docs/decisions: listed, numbered once, and true about where things live."""

import re
from pathlib import Path

PLACE = re.compile(r"`((?:signoff|service|workers|webhooks|tests|docs|examples)/[\w./-]+\.\w+)`")


def _pages(root: Path) -> dict[str, str]:
    found = sorted((root / "docs/decisions").glob("[0-9]*.md"))
    return {
        path.name: path.read_text(encoding="utf-8") for path in found if path.name[:4] != "0000"
    }


def test_the_index_lists_every_decision_by_its_title(root: Path) -> None:
    """README.md of the folder has one line a page: its number, and its title as it stands."""
    index = (root / "docs/decisions/README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^- \[\d+\]\((\S+)\) (.+)$", index, re.MULTILINE))
    titles = {
        name: text.partition("\n")[0].removeprefix(f"# {name[:4]}. ")
        for name, text in _pages(root).items()
    }
    assert listed == titles


def test_no_number_is_given_twice(root: Path) -> None:
    """A number names one decision, also where people refer to it without a link."""
    numbers = [name[:4] for name in _pages(root)]
    assert len(numbers) == len(set(numbers))


def test_decisions_name_files_that_exist(root: Path) -> None:
    """What a page says of where a decision lives is still there."""
    gone = {
        (name, place)
        for name, text in _pages(root).items()
        for place in PLACE.findall(text)
        if not (root / place).exists()
    }
    assert gone == set()
