"""What an orchestration sends: messages, requests, and starts of other orchestrations."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import ParamSpec, Protocol, TypeVar

from postroom.correlation_tokens import add_token, build_response_filter
from postroom.errors import DeliveryFailure, StateError
from postroom.message import Message
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.direct_ports import DirectPort, SelfCorrelatingPort, remove_address
from postroom.orchestrations.execution import Execution, get_execution, operation
from postroom.orchestrations.journal import Send
from postroom.system_properties import BTS

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: How often an atomic function is repeated before its instance is suspended, and the time before each repetition.
_MAX_RETRIES, _RETRY_SECONDS = 21, 2.0
#: Inside ``atomic``: the sends that take effect at its end.
_buffered: ContextVar[list[Send] | None] = ContextVar("buffered_sends", default=None)


class SendPort(Protocol):
    """A declared send port, or a send port group: what ``app.send_port`` and ``app.send_port_group`` return."""

    @property
    def name(self) -> str: ...


class RetryTransaction(Exception):
    """Raised by an atomic function to be run again."""


@operation
async def send(
    message: Message, *, to: SendPort | DirectPort | str | None = None, reply_to: SelfCorrelatingPort | None = None
) -> uuid.UUID:
    """Publish a message: through the bound port ``to``, to the receivers of the direct port ``to``, or to all of its
    subscribers. Return its id. Answers that a receiver sends to ``reply_port(message)`` reach
    ``reply_to``.

    The message becomes visible at the next persistence point. Raise RoutingFailure if it has no subscriber."""
    message = _add_reply_port(message, reply_to)
    execution = get_execution()
    if isinstance(to, DirectPort):
        command = execution.make_send(to.address(message), None, to.full_name)
    else:
        command = execution.make_send(remove_address(message), None if to is None else _get_name(to))
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
    context = remove_address(_add_reply_port(message, reply_to)).context
    context = context.demote_all().promote(BTS.ActivationServiceID, orchestration.name)
    _issue(execution, execution.make_start(replace(message, context=context), orchestration.name))


@operation
async def request(message: Message, *, to: SendPort | str) -> Message:
    """Send a request through a two-way send port, and return its response. Limit the wait with ``asyncio.timeout``.

    Raise DeliveryFailure if the port has given up."""
    refuse_in_atomic("wait for a response", "The request is not sent before the end of the function.")
    execution = get_execution()
    token = str(execution.make_id())
    await send(replace(message, context=add_token(message.context, token)), to=to)
    response = await execution.receive_once(build_response_filter(token))
    _check_nack(response, _get_name(to), "request")
    return response


@operation
async def deliver(message: Message, *, to: SendPort | str) -> None:
    """Send a message through a one-way send port, and wait until the port has delivered it. Limit the wait with
    ``asyncio.timeout``.

    Raise DeliveryFailure if the port has given up. If ``to`` is a group, the first of its ports decides."""
    refuse_in_atomic("wait for a delivery", "The message is not sent before the end of the function.")
    execution = get_execution()
    context = remove_address(message).context.write(BTS.AckRequired, True)
    name = _get_name(to)
    command = execution.make_send(replace(message, context=context), name)
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


def refuse_in_atomic(what: str, why: str) -> None:
    """Raise StateError inside an atomic function."""
    if _buffered.get() is not None:
        raise StateError(
            f"An orchestration cannot {what} in an atomic function.", why=why, hint="Do it after the atomic function."
        )


def _add_reply_port(message: Message, port: SelfCorrelatingPort | None) -> Message:
    return message if port is None else replace(message, context=message.context.write(BTS.ReplyTo, port.token))


def _get_name(port: SendPort | str) -> str:
    return port if isinstance(port, str) else port.name


def _issue(execution: Execution, command: Send) -> None:
    """Issue a send, or add it to those of the atomic function."""
    if (buffered := _buffered.get()) is None:
        execution.issue_sends([command])
    else:
        buffered.append(command)
