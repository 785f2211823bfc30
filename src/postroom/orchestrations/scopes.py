"""Long-running scopes: what was done inside is compensated if something fails later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self

from postroom.orchestrations.compensations import mark_commands, mark_error
from postroom.orchestrations.execution import get_execution

_P = ParamSpec("_P")

_enclosing: ContextVar[Scope | None] = ContextVar("enclosing_scope", default=None)


class Scope:
    """A long-running scope. If its body raises, its compensations run in reverse order. The exception is raised again.
    If nobody handles it, the instance is suspended, and what the compensations did since they last waited is discarded.

    A scope that ends without an exception hands its compensations to the scope around it. Limit the time of a scope
    with ``asyncio.timeout``."""

    def __init__(self) -> None:
        self._compensations: list[Callable[[], Awaitable[object]]] = []
        self._token: Token[Scope | None] | None = None
        self._parent: Scope | None = None

    def compensate_with(self, function: Callable[_P, Awaitable[object]], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Add a compensation for what was just done."""
        self._compensations.append(partial(function, *args, **kwargs))

    async def compensate(self) -> None:
        """Run the compensations in reverse order, each once."""
        with mark_commands():
            while self._compensations:
                await self._compensations.pop()()

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
            await self.compensate()
        elif self._parent is not None:
            self._parent._compensations.append(self.compensate)


def scope() -> Scope:
    """Open a scope with compensation: ``async with scope() as purchase: ...``."""
    return Scope()
