"""The built wheel: what it carries, and that its application starts from anywhere."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

APPLICATION = ("service", "workers", "webhooks")

PROBE = """
import importlib, pathlib, sys
from signoff.launch import application_root, enter_application
root = enter_application()
assert root == application_root() and sys.path[0] == str(root), sys.path[:2]
sys.path.insert(0, "")  # what uvicorn and Celery do later on
for package in ("service", "workers", "webhooks"):
    print(pathlib.Path(importlib.import_module(package).__file__).parent.parent)
"""


def _build(root: Path, folder: Path, version: str) -> zipfile.ZipFile:
    built = next(WheelBuilder(str(root)).build(directory=str(folder), versions=[version]))
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return _build(root, tmp_path_factory.mktemp("standard"), "standard")


def test_wheel_has_one_top_level_name(wheel: zipfile.ZipFile) -> None:
    """Only ``signoff`` reaches site-packages, next to the wheel's own metadata."""
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"signoff"}


def test_wheel_carries_the_whole_application(root: Path, wheel: zipfile.ZipFile) -> None:
    """Every file of the application is under ``signoff/_app``, the SDK's under ``signoff``."""
    names = set(wheel.namelist())
    expected = {"signoff/py.typed"}
    for package, place in [("signoff", ""), *((name, "signoff/_app/") for name in APPLICATION)]:
        expected |= {
            place + path.relative_to(root).as_posix()
            for path in (root / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_wheel_carries_license_and_typing(wheel: zipfile.ZipFile) -> None:
    """The license text and the command are in the metadata."""
    names = wheel.namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    (entry_points,) = [name for name in names if name.endswith("/entry_points.txt")]
    assert "signoff = signoff.cli:main" in wheel.read(entry_points).decode()


def test_editable_install_copies_nothing(root: Path, tmp_path: Path) -> None:
    """An editable install points at the checkout and holds no second copy of a module."""
    with _build(root, tmp_path, "editable") as editable:
        assert [name for name in editable.namelist() if name.endswith(".py")] == []


def test_application_starts_from_the_wheel_despite_decoys(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """The bundled packages win over folders of the same name in the working directory."""
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    wheel.extractall(installed)
    for package in APPLICATION:
        (elsewhere / package).mkdir(parents=True)
        (elsewhere / package / "__init__.py").write_text("raise ImportError('decoy')")
    found = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert found.stderr == ""
    assert set(found.stdout.split()) == {str(installed / "signoff" / "_app")}
