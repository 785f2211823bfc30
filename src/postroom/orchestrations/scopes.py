"""Long-running scopes: what was done inside is compensated if something fails later."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self

from postroom.orchestrations.code_places import mark_commands, mark_error
from postroom.orchestrations.execution import get_execution
from postroom.processes.time_limit import TimedOut

_P = ParamSpec("_P")

_enclosing: ContextVar[Scope | None] = ContextVar("enclosing_scope", default=None)


@dataclass
class _CompensationResult:
    """The result of compensations: how many have run, what they raised, and the cancellation that interrupted one."""

    count: int = 0
    failures: list[BaseException] = field(default_factory=list)
    cancellation: CancelledError | None = None

    def raise_failures(self, cause: BaseException | None) -> None:
        """Raise the failures as one group, with the exception that started the compensations as its cause. A
        cancellation is raised in any case: whoever cancels a task, such as a timeout, expects it."""
        group: BaseException | None = None
        if self.failures:
            verb = "has" if len(self.failures) == 1 else "have"
            text = f"{len(self.failures)} of {self.count} compensations {verb} failed"
            group = BaseExceptionGroup(text, self.failures)
            group.__cause__ = cause
        if self.cancellation is not None:
            raise self.cancellation from group or cause
        if group is not None:
            raise group


class Scope:
    """A long-running scope. If its body raises, all of its compensations run, in reverse order. The exception is raised
    again. If compensations fail, an ExceptionGroup of their exceptions is raised instead, and its ``__cause__`` is the
    exception of the body. If nobody handles what is raised, the instance is suspended, and what the compensations did
    since they last waited is discarded.

    A scope that ends without an exception hands its compensations to the scope around it. Limit the time of a scope
    with ``asyncio.timeout``."""

    def __init__(self) -> None:
        #: Compensations, and scopes inside that have ended.
        self._compensations: list[Callable[[], Awaitable[object]] | Scope] = []
        self._token: Token[Scope | None] | None = None
        self._parent: Scope | None = None

    def compensate_with(self, function: Callable[_P, Awaitable[object]], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Add a compensation for what was just done."""
        self._compensations.append(partial(function, *args, **kwargs))

    async def compensate(self) -> None:
        """Run all compensations in reverse order, each once. Raise an ExceptionGroup if some of them have failed."""
        await self._compensate(None)

    async def _compensate(self, cause: BaseException | None) -> None:
        compensated = _CompensationResult()
        with mark_commands():
            await self._run_compensations(compensated)
        compensated.raise_failures(cause)

    async def _run_compensations(self, compensated: _CompensationResult) -> None:
        while self._compensations:
            compensation = self._compensations.pop()
            if isinstance(compensation, Scope):
                await compensation._run_compensations(compensated)
                continue
            compensated.count += 1
            try:
                await compensation()
            except (GeneratorExit, TimedOut):  # the coroutine is dropped, or its turn took too long
                raise
            except CancelledError as error:
                compensated.cancellation = error
            except BaseException as error:
                compensated.failures.append(error)

    async def __aenter__(self) -> Self:
        self._parent = _enclosing.get()
        self._token = _enclosing.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._token is not None
        if kind is GeneratorExit:  # the coroutine is dropped
            return
        _enclosing.reset(self._token)
        if error is not None:
            if self._compensations:
                mark_error(error, get_execution().journal_events)
            await self._compensate(error)
        elif self._parent is not None:
            self._parent._compensations.append(self)


def scope() -> Scope:
    """Open a scope with compensation: ``async with scope() as purchase: ...``."""
    return Scope()
