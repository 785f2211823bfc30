"""Orchestrations: business processes as coroutines that wait for messages and survive every restart.

    from postroom import Application, Message, orchestrations

    Offers = orchestrations.Correlation(OrderId, filter=Kind == "offer")

    @app.orchestration(activate=Kind == "order", correlations=[Offers])
    async def procure(order: Message) -> None:
        offers = Offers.of(order)
        await orchestrations.send(build_request(order), to=supplier)
        async with asyncio.timeout(60):
            offer = await offers.receive()

Use asyncio for everything that has a name there: ``asyncio.timeout``, ``asyncio.gather``, ``asyncio.TaskGroup``.
"""

from postroom.orchestrations.actions import (
    RetryTransaction,
    atomic,
    carried_state,
    continue_with,
    delay,
    deliver,
    instance_id,
    listen,
    new_id,
    now,
    random,
    receive,
    request,
    send,
    start,
    step,
    step_key,
    suspend,
    terminate,
)
from postroom.orchestrations.correlation import (
    Correlation,
    CorrelationSet,
    DirectPort,
    PartnerPort,
    SelfCorrelatingPort,
    open_port,
    reply_port,
)
from postroom.orchestrations.definition import JournalLimits, Orchestration
from postroom.orchestrations.documents import (
    build_message,
    execute_receive_pipeline,
    execute_send_pipeline,
    transform,
)
from postroom.orchestrations.failures import JournalFull, JournalMismatch, NotAwaited, StepFailed
from postroom.orchestrations.scopes import Scope, scope

__all__ = [
    "Correlation",
    "CorrelationSet",
    "DirectPort",
    "JournalFull",
    "JournalLimits",
    "JournalMismatch",
    "NotAwaited",
    "Orchestration",
    "PartnerPort",
    "RetryTransaction",
    "Scope",
    "SelfCorrelatingPort",
    "StepFailed",
    "atomic",
    "build_message",
    "carried_state",
    "continue_with",
    "delay",
    "deliver",
    "execute_receive_pipeline",
    "execute_send_pipeline",
    "instance_id",
    "listen",
    "new_id",
    "now",
    "open_port",
    "random",
    "receive",
    "reply_port",
    "request",
    "scope",
    "send",
    "start",
    "step",
    "step_key",
    "suspend",
    "terminate",
    "transform",
]
