"""Python functions as tools: the ``@tool`` declaration, checked input, and one guarded run."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from pydantic_core import to_json

from signoff.domain.error import InvalidToolInputError, SignoffError
from signoff.strictjson import well_formed
from signoff.toolschema import Inputs, Parameters, ToolDefinitionError, result_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

__all__ = [
    "CallContext",
    "InvalidToolInputError",
    "Patterns",
    "Tool",
    "ToolDefinitionError",
    "ToolFailedError",
    "ToolTimeoutError",
    "current_call",
    "limit_threads",
    "render",
    "threads_made",
    "tool",
    "use_call",
]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFAULT_THREADS = 32

Patterns = Literal["shell", "path"]


class ToolFailedError(SignoffError):
    """A tool ended in a way that no caller may see raw, such as SystemExit."""

    code = "tool_failed"


class ToolTimeoutError(SignoffError):
    """A tool did not end within its timeout; its effect is unknown."""

    code = "tool_timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Which call a tool is running for; ``idempotency_key`` is the same on every attempt."""

    run_id: int
    tool_use_id: str
    tool: str
    digest: str
    idempotency_key: str
    attempt: int


_call: contextvars.ContextVar[CallContext] = contextvars.ContextVar("signoff_call")


def current_call() -> CallContext:
    """The call that the running tool was started for, in its thread as well."""
    try:
        return _call.get()
    except LookupError:
        msg = "no tool call is running here"
        raise SignoffError(msg, code="no_tool_call") from None


@contextlib.contextmanager
def use_call(context: CallContext) -> Generator[None]:
    """Make ``context`` the current call of what runs inside."""
    token = _call.set(context)
    try:
        yield
    finally:
        _call.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """Something that a model may call; made by ``@tool``, still callable as its function."""

    name: str
    description: str
    function: Callable[..., Any]
    parameters: Inputs
    read_only: bool
    idempotent: bool
    timeout: float | None
    external: bool
    patterns: Patterns | None
    #: What the result of an external call must look like, if that is declared.
    output_schema: Mapping[str, Any] | None = None
    #: False for tools that only the worker knows: their gates keep the schema of the input.
    loaded: bool = True

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the input; unknown fields are closed out on every level."""
        return self.parameters.schema

    @property
    def pattern_parameter(self) -> str | None:
        """The parameter that rule patterns are matched against: the function's first one."""
        return self.parameters.first if self.patterns else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the plain function returns; for tests and for tools that use each other."""
        return self.function(*args, **kwargs)

    def check(self, tool_input: object) -> dict[str, Any]:
        """The arguments for ``tool_input``, omitted ones still omitted.

        Raises InvalidToolInputError whose ``field`` is the dotted path of the first wrong value.
        """
        return self.parameters.check(tool_input)

    async def run(self, arguments: dict[str, Any]) -> str:
        """The result of one execution as the text that a model reads; raises what it raises.

        ToolTimeoutError after ``timeout`` seconds. A coroutine is cancelled then; a plain function
        cannot be stopped, so its thread goes on, keeps its place among the threads until it ends,
        and its result is dropped. Nothing that a tool raises ends the worker.
        """
        if self.external:
            msg = f"{self.name} is external: its result comes from outside"
            raise ToolFailedError(msg)
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                result = await self._call(arguments)
        except TimeoutError:
            if not limit.expired():
                raise
            msg = f"{self.name} took longer than {self.timeout:g} s; its outcome is unknown"
            raise ToolTimeoutError(msg) from None
        return render(result)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self._guard(self.function(**arguments))
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        error, result = await loop.run_in_executor(
            _pool(), lambda: context.run(_outcome, self.function, arguments)
        )
        if error is not None:
            raise self._ours(error) from error
        if inspect.isawaitable(result):  # a coroutine function behind a plain decorator
            return await self._guard(result)
        return result

    async def _guard(self, awaitable: Any) -> Any:
        try:
            return await awaitable
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not ours: letting it pass would look as if the worker were being stopped.
            raise self._ours(error) from error
        except GeneratorExit:
            raise
        except BaseException as error:
            ours = self._ours(error)
            if ours is error:
                raise
            raise ours from error

    def _ours(self, error: BaseException) -> Exception:
        # StopIteration cannot leave a coroutine as itself, the others would stop the loop.
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
        return ToolFailedError(f"{self.name} raised {type(error).__name__}: {error}")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    read_only: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
    external: bool = False,
    patterns: Patterns | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    read_only: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
    external: bool = False,
    patterns: Patterns | None = None,
    name: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a plain or async function as a tool; its docstring is what the model reads.

    ``read_only`` tools run unasked and concurrently; ``idempotent`` ones may run again after a
    crash with the same key. ``external`` ones never run here: a result comes from outside, and
    must fit the type that the function says it returns. ``patterns`` makes rules with a pattern
    apply to the first parameter, as a shell command or as a path.
    """

    def declare(subject: Callable[..., Any]) -> Tool:
        tool_name = name if name is not None else subject.__name__
        _check_declaration(subject, tool_name, timeout)
        parameters = Parameters(subject, tool_name)
        if patterns is not None and next(iter(parameters.hints.values()), None) is not str:
            msg = f"tool {tool_name}: patterns need a first parameter of type str"
            raise ToolDefinitionError(msg)
        return Tool(
            name=tool_name,
            description=inspect.getdoc(subject) or "",
            function=subject,
            parameters=parameters,
            read_only=read_only,
            idempotent=idempotent,
            timeout=timeout,
            external=external,
            patterns=patterns,
            output_schema=result_schema(subject, tool_name) if external else None,
        )

    return declare if function is None else declare(function)


def _check_declaration(subject: Callable[..., Any], name: str, timeout: float | None) -> None:
    if not NAME.fullmatch(name):
        msg = f"tool {name!r}: a name has 1 to 64 letters, digits, underscores and hyphens"
        raise ToolDefinitionError(msg)
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        msg = f"tool {name}: a timeout is a positive number of seconds"
        raise ToolDefinitionError(msg)
    if inspect.isgeneratorfunction(subject) or inspect.isasyncgenfunction(subject):
        msg = f"tool {name}: a generator has no single result"
        raise ToolDefinitionError(msg)


def render(result: Any) -> str:
    """A tool's result as text: a string as it is, anything else as compact JSON.

    It never fails on a strange value: the tool has run by then, and an error would invite the
    model to run it again. Lone surrogates, which no store can keep, are replaced.
    """
    if isinstance(result, str):
        return well_formed(str.__str__(result))
    try:
        raw = to_json(result, inf_nan_mode="strings", serialize_unknown=True)
    except (ValueError, TypeError, RecursionError):
        return well_formed(repr(result))
    return raw.decode()


def _outcome(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[BaseException | None, Any]:
    """The call's end as a value: a future neither carries StopIteration nor survives SystemExit."""
    try:
        return None, function(**arguments)
    except BaseException as error:  # noqa: BLE001 - all are turned into errors of the call
        return error, None


class _Threads:
    """The process's threads for plain functions, made when first needed (so after any fork)."""

    lock = threading.Lock()
    limit = DEFAULT_THREADS
    pool: ThreadPoolExecutor | None = None


def limit_threads(count: int) -> None:
    """Let at most ``count`` plain functions run at once in this process; call it at start."""
    with _Threads.lock:
        _Threads.limit = count
        _Threads.pool = None


def threads_made() -> bool:
    """Whether plain functions ran here; one that still runs would keep the process from ending."""
    with _Threads.lock:
        return _Threads.pool is not None


def _pool() -> ThreadPoolExecutor:
    with _Threads.lock:
        if _Threads.pool is None:
            _Threads.pool = ThreadPoolExecutor(_Threads.limit, thread_name_prefix="signoff-tool")
        return _Threads.pool
