"""Applications with orchestrations for tests: written to a file, applied, and run by host instances."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from postroom.application import load
from postroom.message import Message
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.plan import Plan
from postroom.properties import Property
from tests.support.box import Box
from tests.support.recording_adapter import RecordingAdapter

Kind = Property("Tests.Kind", str)
Key = Property("Tests.Key", str)

_HEAD = """
import asyncio
from contextlib import suppress
from postroom import Application, Message, Property, adapters, orchestrations
from postroom.orchestrations import Correlation

Kind = Property("Tests.Kind", str)
Key = Property("Tests.Key", str)
app = Application("tests")
app.host("Default")
app.property(Kind, Key)
Replies = Correlation(Key, filter=Kind == "reply")
app.send_port("Out", adapters.Null(), host="Default")
"""

#: Sends the body of each order.
ECHO = """
@app.orchestration(activate=Kind == "order", host="Default")
async def echo(order: Message) -> None:
    await orchestrations.send(Message.of(b"echo " + order.data), to="Out")
"""

#: Waits for two replies to each order.
COLLECT = """
@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def collect(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(Message.of(b"ask"), to="Out")
    texts = [(await replies.receive()).data for _ in range(2)]
    await orchestrations.send(Message.of(b" ".join(texts)), to="Out")
"""


@dataclass
class Clock:
    """The time of a host. The test moves it."""

    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.time


def apply_orchestrations(
    box: Box,
    folder: Path,
    code: str,
    *,
    host: str = 'app.host("Default")',
    backlog: Backlog | None = None,
    allow_incompatible: bool = False,
) -> Plan:
    """Write an application, after imports, properties and a send port ``Out``, and apply it. ``host`` declares the
    host."""
    file = folder / "app.py"
    file.write_text(_HEAD.replace('app.host("Default")', host) + textwrap.dedent(code))
    return apply(box.connection, load(file), home=folder, backlog=backlog, allow_incompatible=allow_incompatible)


def publish(box: Box, kind: str, *bodies: str, key: str = "k") -> None:
    """Publish messages, one after the other."""
    for body in bodies:
        message = Message.of(body.encode(), promoted={Kind: kind, Key: key})
        box.agent(warm=False).publish([message])


def sent(recorder: RecordingAdapter) -> list[bytes]:
    """Return the bodies that were sent, sorted."""
    return sorted(one.body for one in recorder.sent)


def has_ended(box: Box) -> bool:
    """Return True if there is no instance, and no message that waits."""
    return box.count("orchestration instances") == 0 and box.count("queued") == 0


def is_empty(box: Box) -> bool:
    """Return True if there is no instance in any state."""
    return box.count("orchestration instances") == 0 and box.count("instances") == 0
