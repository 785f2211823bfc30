"""Applications with orchestrations for tests: written to a file, applied, and run by host instances."""

from __future__ import annotations

import textwrap
from pathlib import Path

from postroom.application import load
from postroom.message import Message
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.plan import Plan
from postroom.properties import Property
from tests.support.box import Box

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


def apply_orchestrations(box: Box, folder: Path, code: str) -> Plan:
    """Write an application, after imports, properties and a send port ``Out``, and apply it."""
    file = folder / "app.py"
    file.write_text(_HEAD + textwrap.dedent(code))
    box.connection.execute("UPDATE applications SET definition = '{\"name\": \"t\"}' WHERE name = 't'")
    return apply(box.connection, load(file), home=folder)


def publish(box: Box, kind: str, *bodies: str, key: str = "k") -> None:
    """Publish messages, one after the other."""
    for body in bodies:
        message = Message.of(body.encode(), promoted={Kind: kind, Key: key})
        box.agent(warm=False).publish([message])
