"""The toolbox: tools are found where the operator says, and every doubt is refused at load."""

import importlib
import sys
from types import ModuleType

import pytest

from signoff.domain.error import SettingsError
from signoff.toolbox import Toolbox
from signoff.tooldef import Tool, tool

TWO = '''
from signoff.tooldef import tool

@tool(read_only=True)
def {first}() -> str:
    """First."""
    return "{text}"

@tool
async def {second}() -> str:
    """Second."""
    return "{text}"

alias = {first}
not_a_tool = 1
'''


@pytest.fixture(autouse=True)
def _modules_as_before():
    """Forget what a test imported."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def write(tmp_path):
    """Write a module below the working directory."""

    def _write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return _write


def test_tools_are_collected_in_order(write, tmp_path):
    """Module-level tools of each named module, in the order of both; other values are not."""
    write("tools_a.py", TWO.format(first="b", second="a", text="x"))
    write("nested/tools_b.py", TWO.format(first="d", second="c", text="y"))
    found = Toolbox.load(" tools_a , nested.tools_b,", tmp_path)
    assert list(found) == ["b", "a", "d", "c"]
    assert len(found) == 4
    assert isinstance(found["a"], Tool)
    assert found.get("a") is found["a"]
    assert found.get("nothing") is None
    assert "d" in found


def test_no_modules_are_no_tools(tmp_path):
    """An empty setting is an empty toolbox."""
    assert len(Toolbox.load("", tmp_path)) == 0
    assert len(Toolbox()) == 0


def test_the_working_directory_comes_first(write, tmp_path):
    """A module there wins over one of the same name elsewhere on the path."""
    elsewhere = tmp_path / "elsewhere"
    write("elsewhere/tools_c.py", TWO.format(first="far", second="far2", text="x"))
    write("tools_c.py", TWO.format(first="near", second="near2", text="x"))
    sys.path.insert(0, str(elsewhere))
    assert list(Toolbox.load("tools_c", tmp_path)) == ["near", "near2"]


def test_the_working_directory_shadows_nothing_later(write, tmp_path):
    """After loading it is last: tools still find their neighbours, the server its own modules."""
    write("tools_d.py", TWO.format(first="d", second="e", text="x"))
    before = list(sys.path)
    Toolbox.load("tools_d", tmp_path)
    assert sys.path == [*before, str(tmp_path)]
    Toolbox.load("tools_d", tmp_path)
    assert sys.path == [*before, str(tmp_path)]


def test_user_examples_stand_beside_ours(write, tmp_path):
    """A folder called examples in the working directory does not hide the demo tools."""
    write("examples/mine.py", TWO.format(first="m", second="n", text="x"))
    found = Toolbox.load("examples.demo_tools,examples.mine", tmp_path)
    assert "Bash" in found
    assert "m" in found


def test_one_tool_may_be_seen_twice(write, tmp_path):
    """A tool imported by another tool module is one tool, not two of one name."""
    write("tools_e.py", TWO.format(first="d", second="e", text="x"))
    write("tools_f.py", "from tools_e import d\n")
    assert list(Toolbox.load("tools_e,tools_f", tmp_path)) == ["d", "e"]


def test_two_tools_of_one_name_are_refused(write, tmp_path):
    """The message names both modules."""
    write("tools_g.py", TWO.format(first="same", second="g", text="x"))
    write("tools_h.py", TWO.format(first="same", second="h", text="y"))
    with pytest.raises(SettingsError, match="same is declared by tools_g and tools_h") as caught:
        Toolbox.load("tools_g,tools_h", tmp_path)
    assert caught.value.field == "SIGNOFF_TOOLS"


@pytest.mark.parametrize("name", ["AskUserQuestion", "ExitPlanMode"])
def test_reserved_names_are_refused(name):
    """The engine answers these itself."""
    module = ModuleType("tools_i")
    module.subject = tool(name=name)(lambda: "")  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match=f"tools_i declares {name}"):
        Toolbox({"tools_i": module})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the tool module tools_j is not found"),
        ("x = 1\n", "the module tools_j declares no tool"),
        ("import surely_not_installed\n", "tools_j needs surely_not_installed"),
        ("1 / 0\n", "tools_j cannot be loaded: ZeroDivisionError"),
        ("def\n", "tools_j cannot be loaded: SyntaxError"),
        ("raise SystemExit(1)\n", "tools_j cannot be loaded: SystemExit"),
        (
            "from signoff.tooldef import tool\n@tool\ndef f(x): ...\n",
            "tools_j cannot be loaded: ToolDefinitionError: tool f: the parameter 'x' has no type",
        ),
        (
            "from signoff.tooldef import tool\n@tool(name='a b')\ndef f(): ...\n",
            "tools_j cannot be loaded: ToolDefinitionError: tool 'a b': a name has",
        ),
    ],
)
def test_a_module_that_cannot_be_loaded_is_named(write, tmp_path, text, message):
    """Every way to fail ends in one error that names the module and the reason."""
    if text is not None:
        write("tools_j.py", text)
    with pytest.raises(SettingsError, match="tools_j") as caught:
        Toolbox.load("tools_j", tmp_path)
    assert message in caught.value.message


def test_a_missing_package_is_not_found(tmp_path):
    """The dotted name is reported as it was given."""
    with pytest.raises(SettingsError, match=r"the tool module nowhere\.tools is not found"):
        Toolbox.load("nowhere.tools", tmp_path)
