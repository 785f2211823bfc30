"""What an orchestration does: receive, send, run steps with side effects, wait, end, ask for the time."""

from __future__ import annotations

import asyncio
import inspect
import random as random_module
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, overload

from postroom.correlation_tokens import add_token, build_response_filter, remove_token
from postroom.errors import BadValue, DeliveryFailure, StateError
from postroom.filters.expression import Filter
from postroom.message import Message
from postroom.orchestrations.argument_digests import digest_call
from postroom.orchestrations.correlation import DirectPort, SelfCorrelatingPort, remove_address
from postroom.orchestrations.definition import Orchestration, SendPort, get_port_name
from postroom.orchestrations.execution import CONVOY, Execution, get_execution, operation
from postroom.orchestrations.failures import StepFailed
from postroom.orchestrations.journal import Send
from postroom.orchestrations.receives import to_filter
from postroom.orchestrations.recorded_values import decode_value, encode_value
from postroom.schemas import Schema
from postroom.system_properties import BTS

_P = ParamSpec("_P")
_T = TypeVar("_T")
_U = TypeVar("_U")
_V = TypeVar("_V")
_Ts = TypeVarTuple("_Ts")

#: How often an atomic function is repeated before its instance is suspended, and the time before each repetition.
_MAX_RETRIES, _RETRY_SECONDS = 21, 2.0
#: Inside ``atomic``: the sends that take effect at its end.
_buffered: ContextVar[list[Send] | None] = ContextVar("buffered_sends", default=None)
#: Inside a step: its idempotency key.
_step_key: ContextVar[uuid.UUID | None] = ContextVar("step_key", default=None)


async def receive(only: Filter | Schema | str | None = None) -> Message:
    """Wait for the next message of the convoy. With ``only`` it is the next one that matches a filter, or that has a
    message type, which is a text or a schema. Other messages stay for other receives.

    An orchestration with several activating receives also receives the message that has activated it:

    order, payment = await asyncio.gather(receive(IsOrder), receive(IsPayment))    # with a convoy: both
    order, payment = await listen(receive(IsOrder), receive(IsPayment))            # the one that came, and None
    """
    execution = get_execution()
    if not execution.can_receive:
        raise StateError(
            f"The orchestration {execution.orchestration.name!r} is no convoy, so there is nothing to receive.",
            hint="Declare it with convoy=[...], or receive from a correlation set.",
        )
    return await execution.receive(CONVOY, None if only is None else to_filter(only))


class RetryTransaction(Exception):
    """Raised by an atomic function to be run again."""


@operation
async def send(
    message: Message, *, to: SendPort | DirectPort | str | None = None, reply_to: SelfCorrelatingPort | None = None
) -> uuid.UUID:
    """Publish a message: through the logical port ``to``, to the receivers of the direct port ``to``, or to all of its
    subscribers. Return its id. Answers that a receiver sends to ``reply_port(message)`` reach
    ``reply_to``. A request that is sent on to a send port, or to all subscribers, has no caller any more.

    The message becomes visible at the next persistence point. Raise RoutingFailure if it has no subscriber."""
    execution = get_execution()
    execution.check_promoted(message)
    message = _add_reply_port(message, reply_to)
    if isinstance(to, DirectPort):
        command = execution.make_send(to.address(message), None, to.full_name)
    else:
        context = remove_token(remove_address(message.context))
        if context is not message.context:
            message = replace(message, context=context)
        command = execution.make_send(message, None if to is None else get_port_name(to))
    _issue(execution, command)
    return command.message.message_id


@operation
async def start(orchestration: Orchestration, message: Message, *, reply_to: SelfCorrelatingPort | None = None) -> None:
    """Start an instance of another orchestration, in its newest version, and do not wait for it.

    The orchestration is declared without ``activate``. It starts at the next persistence point. The message reaches
    nobody else: its properties can be read, but are not promoted. Answers that the orchestration sends to
    ``reply_port(message)`` reach ``reply_to``. Raise RoutingFailure if the orchestration is not enlisted.
    To run it as a part of this instance and to wait for it, call it: ``await orchestration(message)``."""
    execution = get_execution()
    if orchestration.activate is not None:
        raise StateError(
            f"The orchestration {orchestration.name!r} is activated by messages, so it cannot be started.",
            hint="Publish a message that matches its filter, or declare it without activate=.",
        )
    if orchestration.name == execution.orchestration.name:
        raise StateError(
            f"The orchestration {orchestration.name!r} cannot start itself.", hint="Use a loop, or continue_with()."
        )
    context = remove_address(_add_reply_port(message, reply_to).context)
    context = context.demote_all().promote(BTS.ActivationServiceID, orchestration.name)
    _issue(execution, execution.make_start(replace(message, context=context), orchestration))


@operation
async def request(message: Message, *, to: SendPort | str) -> Message:
    """Send a request through a two-way send port, and return its response. Limit the wait with ``asyncio.timeout``.

    Raise DeliveryFailure if the port has given up."""
    _refuse_in_atomic("wait for a response", "The request is not sent before the end of the function.")
    execution = get_execution()
    execution.check_promoted(message)
    token = str(execution.make_id())
    context = add_token(remove_address(message.context), token)
    name = get_port_name(to)
    _issue(execution, execution.make_send(replace(message, context=context), name, call="request"))
    response = await execution.receive_once(build_response_filter(token))
    _check_nack(response, name, "request")
    return response


@operation
async def deliver(message: Message, *, to: SendPort | str) -> None:
    """Send a message through a one-way send port, and wait until the port has delivered it. Limit the wait with
    ``asyncio.timeout``.

    Raise DeliveryFailure if the port has given up. If ``to`` is a group, the first of its ports decides."""
    _refuse_in_atomic("wait for a delivery", "The message is not sent before the end of the function.")
    execution = get_execution()
    execution.check_promoted(message)
    context = remove_token(remove_address(message.context)).write(BTS.AckRequired, True)
    name = get_port_name(to)
    command = execution.make_send(replace(message, context=context), name, call="deliver")
    _issue(execution, command)
    acknowledgement = await execution.receive_once(BTS.AckID == str(command.message.message_id), acknowledged_by=name)
    _check_nack(acknowledgement, name, "message")


def _check_nack(answer: Message, port: str, what: str) -> None:
    if answer.context.get(BTS.AckType) == "NACK":
        raise DeliveryFailure(
            f"The send port {port!r} could not send the {what}.", why=answer.context.get(BTS.AckDescription) or ""
        )


@operation
async def atomic(function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a coroutine function so that all of its sends take effect when it returns, or none if it raises.

    Raise RoutingFailure, and send nothing, if one of its messages has no subscribers.
    If it raises RetryTransaction, it runs again after two seconds, up to 21 times. Then the instance is suspended. When
    an operator resumes it, the function runs again, with the same number of repetitions."""
    retries = 0
    while True:
        buffered: list[Send] = []
        token = _buffered.set(buffered)
        try:
            result = await function(*args, **kwargs)
            break
        except RetryTransaction:
            if retries < _MAX_RETRIES:
                retries += 1
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                retries = 0
                name = getattr(function, "__qualname__", repr(function))
                reason = f"The atomic function {name} was repeated {_MAX_RETRIES} times and has not succeeded."
                await get_execution().suspend(reason)
        finally:
            _buffered.reset(token)
    if (enclosing := _buffered.get()) is None:
        get_execution().issue_sends(buffered)
    else:
        enclosing += buffered
    return result


def _refuse_in_atomic(what: str, why: str) -> None:
    """Raise StateError inside an atomic function."""
    if _buffered.get() is not None:
        raise StateError(
            f"An orchestration cannot {what} in an atomic function.", why=why, hint="Do it after the atomic function."
        )


def _add_reply_port(message: Message, port: SelfCorrelatingPort | None) -> Message:
    return message if port is None else replace(message, context=message.context.write(BTS.ReplyTo, port.token))


def _issue(execution: Execution, command: Send) -> None:
    """Issue a send, or add it to those of the atomic function."""
    if (buffered := _buffered.get()) is None:
        execution.issue_sends([command])
    else:
        buffered.append(command)


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

    No handler and no compensation runs. Messages of a correlation set that it has not received are suspended, and those
    of a convoy activate the next instance, as at every end."""
    await get_execution().terminate(reason)


@operation
async def suspend(reason: str) -> None:
    """Suspend the instance at its next persistence point. It continues here when an operator resumes it.

    Timers do not fire until then."""
    _refuse_in_atomic("suspend itself", "Nothing of an atomic function is stored before its end.")
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
