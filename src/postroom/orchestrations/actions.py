"""What an orchestration does, besides sending: receive, run steps with side effects, wait, end, ask for the time."""

from __future__ import annotations

import asyncio
import inspect
import random as random_module
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar, TypeVarTuple, overload

from postroom.errors import BadValue, StateError
from postroom.message import Message
from postroom.orchestrations.argument_digests import digest_call
from postroom.orchestrations.execution import CONVOY, get_execution, operation
from postroom.orchestrations.failures import StepFailed
from postroom.orchestrations.recorded_values import decode_value, encode_value
from postroom.orchestrations.sending import refuse_in_atomic

_T = TypeVar("_T")
_U = TypeVar("_U")
_V = TypeVar("_V")
_Ts = TypeVarTuple("_Ts")

#: Inside a step: its idempotency key.
_step_key: ContextVar[uuid.UUID | None] = ContextVar("step_key", default=None)


async def receive() -> Message:
    """Wait for the next message of the convoy."""
    execution = get_execution()
    if not execution.orchestration.convoy:
        raise StateError(
            f"The orchestration {execution.orchestration.name!r} is no convoy, so there is nothing to receive.",
            hint="Declare it with convoy=[...], or receive from a correlation set.",
        )
    return await execution.receive(CONVOY)


@overload
async def step(
    function: Callable[[*_Ts], Awaitable[_T]],
    *args: *_Ts,
    attempts: int = 1,
    delay: float = 1.0,
    timeout: float | None = None,
    secret: bool = False,
) -> _T: ...
@overload
async def step(
    function: Callable[[*_Ts], _T],
    *args: *_Ts,
    attempts: int = 1,
    delay: float = 1.0,
    timeout: float | None = None,
    secret: bool = False,
) -> _T: ...
@operation  # type: ignore[misc]
async def step(
    function: Any,
    *args: Any,
    attempts: int = 1,
    delay: float = 1.0,
    timeout: float | None = None,
    secret: bool = False,
) -> Any:
    """Call a function with side effects, once: its result is in the journal, and a replay does not call it again.

    After a crash before the result is stored, the function is called again. ``step_key()`` is the same then.
    ``attempts`` is how often the function is called until it succeeds, ``delay`` the time in seconds between two
    attempts. A call that takes longer than ``timeout`` seconds has failed. Raise StepFailed if no attempt succeeds.

    The instance is suspended if the function has returned something that the journal cannot store.

    The result is stored in the journal, but never shown. With ``secret`` the text of an error is neither stored nor
    shown, only its type."""
    execution = get_execution()
    name = getattr(function, "__qualname__", repr(function))

    def call(key: uuid.UUID) -> object:
        token = _step_key.set(key)
        try:
            result = function(*args)
            return asyncio.run(_finish(result)) if inspect.isawaitable(result) else result
        finally:
            _step_key.reset(token)

    digest = None if secret else digest_call(function, args)
    for _ in range(1, attempts):
        try:
            return await execution.run_step(name, call, timeout, digest=digest, is_secret=secret)
        except StepFailed:
            await asyncio.sleep(delay)
    return await execution.run_step(name, call, timeout, digest=digest, is_secret=secret)


async def _finish(result: Awaitable[_T]) -> _T:
    return await result


def step_key() -> uuid.UUID:
    """Return the idempotency key of the step that runs now. Every attempt after a crash has the same."""
    key = _step_key.get()
    if key is None:
        raise StateError("There is no step, so there is no key.", hint="Call it inside a function that step() runs.")
    return key


async def delay(until: timedelta | datetime | float) -> None:
    """Wait for a time in seconds, for a timedelta, or until a point in time."""
    if isinstance(until, datetime):
        until = until - get_execution().now
    await asyncio.sleep(max(0.0, until.total_seconds() if isinstance(until, timedelta) else until))


@overload
async def listen(first: Awaitable[_T], second: Awaitable[_U], /) -> tuple[_T | None, _U | None]: ...
@overload
async def listen(
    first: Awaitable[_T], second: Awaitable[_U], third: Awaitable[_V], /
) -> tuple[_T | None, _U | None, _V | None]: ...
@overload
async def listen(*branches: Awaitable[_T]) -> tuple[_T | None, ...]: ...
async def listen(*branches: Awaitable[Any]) -> tuple[Any, ...]:
    """Wait for the first of several receives or delays. Return its result at its position, and None for the others.

    The others are cancelled. A message that comes later stays for the next receive.

    offer, _ = await listen(offers.receive(), delay(60))
    """
    tasks = [asyncio.ensure_future(branch) for branch in branches]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tuple(task.result() if task is first else None for task in tasks)


@operation
async def continue_with(state: object) -> NoReturn:
    """Start the orchestration again with a fresh journal and the message that activated it.

    ``carried_state`` returns ``state`` then. Call it from time to time in a loop over many messages: a restart of the
    host replays only the last journal. Messages that were not received stay. Correlation sets have to be initialised
    again. ``state`` is data, as the results of steps."""
    limit = get_execution().orchestration.journal_limits.size
    text = encode_value(state)
    if len(text) > limit:
        raise BadValue(
            f"The state has {len(text):,} characters, and the journal can have {limit:,}.",
            hint="Store the data elsewhere, and carry a reference to it.",
        )
    await get_execution().continue_with(decode_value(text))


@operation
async def terminate(reason: str) -> NoReturn:
    """End the instance at once, with all of its tasks. What it has sent before is published.

    No handler and no compensation runs. Messages that it has not received are suspended, as at every end."""
    await get_execution().terminate(reason)


@operation
async def suspend(reason: str) -> None:
    """Suspend the instance at its next persistence point. It continues here when an operator resumes it.

    Timers do not fire until then."""
    refuse_in_atomic("suspend itself", "Nothing of an atomic function is stored before its end.")
    await get_execution().suspend(reason)


def carried_state() -> Any:
    """Return the state that the last ``continue_with`` has passed on. None before the first one."""
    # A copy: the orchestration may change it, and a replay starts with the state that was carried.
    return deepcopy(get_execution().carried.state)


def now() -> datetime:
    """Return the time of the event that the instance handles. A replay gets the same time."""
    return get_execution().now


def random() -> random_module.Random:
    """Return the random numbers of the instance. A replay gets the same numbers."""
    return get_execution().random


def new_id() -> uuid.UUID:
    """Return a new id. A replay gets the same id."""
    return get_execution().make_id()


def instance_id() -> uuid.UUID:
    """Return the id of this instance."""
    return get_execution().instance_id
