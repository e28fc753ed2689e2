"""The tools of this deployment: loaded from the modules that the operator names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from signoff.declared import RESERVED
from signoff.domain.error import InvalidFieldError, SettingsError
from signoff.mcpserver import MCP_PREFIX
from signoff.shape import shape_of
from signoff.tooldef import Tool

SETTING = "SIGNOFF_TOOLS"


class Toolbox(Mapping[str, Tool]):
    """All loaded tools by name, in the order of their declaration."""

    __slots__ = ("_sources", "_tools")

    def __init__(self, modules: Mapping[str, ModuleType] | None = None) -> None:
        """Collect the module-level tools; raises SettingsError for reserved or repeated names."""
        self._tools: dict[str, Tool] = {}
        self._sources: dict[str, str] = {}
        for source, module in (modules or {}).items():
            found = [item for item in vars(module).values() if isinstance(item, Tool)]
            if not found:
                _refuse(f"the module {source} declares no tool")
            for item in found:
                self._add(item, source)

    @classmethod
    def load(cls, names: str, cwd: str | Path) -> Toolbox:
        """The tools of the comma-separated module ``names``, looked up in ``cwd`` first."""
        modules: dict[str, ModuleType] = {}
        with first_on_path(str(Path(cwd).resolve())):
            for name in (part.strip() for part in names.split(",")):
                if name:
                    modules[name] = _import(name)
        return cls(modules)

    def __getitem__(self, name: str) -> Tool:
        """The tool ``name``; KeyError if there is none."""
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in order."""
        return iter(self._tools)

    def __len__(self) -> int:
        """How many tools there are."""
        return len(self._tools)

    def _add(self, item: Tool, source: str) -> None:
        if item.name in RESERVED:
            _refuse(f"{source} declares {item.name}, a name that Signoff itself answers")
        if item.name.startswith(MCP_PREFIX):
            _refuse(f"{source} declares {item.name}; {MCP_PREFIX} is for tools of MCP servers")
        if item.output_schema is not None:
            try:
                shape_of(item.output_schema, field="output_schema")
            except InvalidFieldError as error:
                _refuse(f"{source}: the result of {item.name} cannot be checked: {error.message}")
        standing = self._tools.get(item.name)
        if standing is item:  # bound to two names, or imported by another tool module
            return
        if standing is not None:
            _refuse(f"the tool {item.name} is declared by {self._sources[item.name]} and {source}")
        self._tools[item.name] = item
        self._sources[item.name] = source


def _refuse(message: str) -> None:
    raise SettingsError(message, field=SETTING)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            msg = f"the tool module {name} is not found"
        else:
            msg = f"the tool module {name} needs {missing}, which is not installed"
        raise SettingsError(msg, field=SETTING) from error
    except (Exception, SystemExit) as error:
        msg = f"the tool module {name} cannot be loaded: {type(error).__name__}: {error}"
        raise SettingsError(msg, field=SETTING) from error


@contextmanager
def first_on_path(folder: str) -> Generator[None]:
    """Have ``folder`` first on the import path, and last afterwards.

    Tools may import their neighbours later, but no file there may replace a module that the
    server has yet to load.
    """
    before = list(sys.path)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in before:
            sys.path.append(folder)
