"""Functions that jobs may name: `@function` registers a callable, a worker that imported it runs it.

    from tocsin.client import function

    @function
    def send_invoices(day: str) -> str: ...

    @function("reports.nightly")
    async def nightly(context: FunctionContext, region: str = "eu") -> None: ...

A job's `arguments` (a JSON object) become keyword arguments. A parameter named `context` receives the FunctionContext.
A plain function runs in a thread of its own, an `async` one on the worker's event loop, which it must not block.
Registering is all that happens here: this module imports nothing but the standard library.
"""

import inspect
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, overload

FunctionLike = Callable[..., Any]
F = TypeVar("F", bound=FunctionLike)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DoNotRetry(Exception):
    """Raised by a function whose failure another attempt would only repeat: the run fails for good."""


class RetryAfter(Exception):
    """Raised by a function that wants its next attempt no sooner than `delay_s` seconds from now."""

    def __init__(self, delay_s: float, message: str = "") -> None:
        super().__init__(message or f"asked to be tried again in {delay_s:g} s")
        self.delay_s = delay_s


class DuplicateFunction(ValueError):
    """Two callables were registered under one name; give one of them another: `@function("name")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContext:
    """Which run a function executes for. Equal for every attempt, but for `attempt` and `dispatch`."""

    run_id: str
    """The same for each attempt: what an idempotent function stores with its effects."""
    job: str
    """`namespace/id`."""
    attempt: int
    dispatch: int
    nominal_ms: int
    """The instant that the schedule named, milliseconds since the epoch, UTC."""
    due_ms: int
    _cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _seen: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def nominal(self) -> datetime:
        """The instant that the schedule named, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.nominal_ms)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled, or the worker wants to stop. A thread cannot be interrupted from outside, so
        a long plain function should look here now and then, and return. One that has seen it counts as cancelled when
        it returns; one that has not looked counts as what it returned or raised."""
        return self.wait_cancelled(0)

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Wait for at most `timeout_s`, in place of a sleep; then as is_cancelled."""
        if not self._cancelled.wait(timeout_s):
            return False
        self._seen.set()
        return True

    def cancel(self) -> None:
        """For the worker: let is_cancelled be seen."""
        self._cancelled.set()

    @property
    def has_seen_cancel(self) -> bool:
        """For the worker: whether the function knows."""
        return self._seen.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredFunction:
    """A callable with what a worker has to know to call it."""

    name: str
    call: FunctionLike
    is_async: bool
    wants_context: bool
    signature: inspect.Signature | None
    """None for a built-in that does not tell."""


class FunctionRegistry:
    """Callables by name."""

    def __init__(self) -> None:
        self._functions: dict[str, RegisteredFunction] = {}

    def register(self, call: FunctionLike, name: str | None = None) -> None:
        """`call` runs for jobs that name `name`, by default its own. Raises DuplicateFunction, ValueError."""
        name = call.__name__ if name is None else name
        if not _NAME.fullmatch(name):
            raise ValueError(f"a function's name must match {_NAME.pattern}, not {name!r}: @function('name')")
        existing = self._functions.get(name)
        if existing is not None and _origin(existing.call) != _origin(call):
            raise DuplicateFunction(
                f"{_origin(call)} and {_origin(existing.call)} are both registered as {name!r}: give one of them "
                f"another name, @function('name')"
            )
        try:
            signature = inspect.signature(call)
        except ValueError:
            signature = None
        self._functions[name] = RegisteredFunction(
            name=name,
            call=call,
            is_async=inspect.iscoroutinefunction(call),
            wants_context=signature is not None and "context" in signature.parameters,
            signature=signature,
        )

    def get(self, name: str) -> RegisteredFunction | None:
        return self._functions.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._functions))

    def __len__(self) -> int:
        return len(self._functions)


registry: Final = FunctionRegistry()
"""What `@function` registers, in this process."""


@overload
def function(call: F, /) -> F: ...
@overload
def function(name: str | None = None) -> Callable[[F], F]: ...
def function(name: F | str | None = None) -> F | Callable[[F], F]:
    """Register the decorated callable under its own name, or under the given one. It stays callable as before."""
    if name is not None and not isinstance(name, str):
        registry.register(name)
        return name

    def named(call: F) -> F:
        registry.register(call, name)
        return call

    return named


def _origin(call: FunctionLike) -> str:
    """Where it was defined: a module that is imported again registers the same function again."""
    return f"{call.__module__}.{call.__qualname__}"
