"""Publish messages of an operator on behalf of a host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from postroom.agent.addressing import Addressees, describe_unreachable
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.direct.direct_batch import Published
from postroom.errors import PublishFailed
from postroom.message import Message
from postroom.messagebox.configuration.hosts import get_publishing_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling.load import read_throttle
from postroom.messagebox.throttling.pace import find_pauses


def publish(
    connection: Connection,
    messages: Sequence[Message],
    *,
    host: str | None = None,
    to: str | None = None,
    key: str | None = None,
) -> Sequence[Published]:
    """Publish all messages or none, on behalf of ``host`` or the default host. ``to`` is a send port or a send port
    group that they are directed to. ``key`` is their idempotency key. Wait while the host is throttled."""
    if to is not None:
        addressees = Addressees.read(connection)
        messages = [replace(message, context=addressees.direct(to, message.context)) for message in messages]
    publishing = get_publishing_host(connection, host)
    for pause in find_pauses(lambda: read_throttle(connection, publishing.host_id, None)):
        time.sleep(pause)
    try:
        return DirectAgent(connection, publishing).publish(messages, key=key)
    except PublishFailed as error:
        error.hint = (to and describe_unreachable(connection, to)) or error.hint
        raise
