"""The send ports that the logical ports of orchestrations are bound to, at one time.

The journal has the names of logical ports, so a replay does not depend on bindings.
"""

from __future__ import annotations

import uuid

from postroom.agent.addressing import Addressees
from postroom.filters.expression import Filter
from postroom.message import Message
from postroom.messagebox.bindings import BoundIds, find_target, read_bindings
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import DeployedOrchestration
from postroom.orchestrations.journal import Correlate, Send
from postroom.system_properties import BTS


class BoundPorts:
    """The send ports, the groups and the bindings of all orchestrations, as they were read. ``version`` is the routing
    version that was known before."""

    def __init__(self, addressees: Addressees, bound_ids: BoundIds, version: int) -> None:
        self.version = version
        self._addressees = addressees
        self._bound_ids = bound_ids

    @classmethod
    def read(cls, connection: Connection, version: int) -> BoundPorts:
        return cls(Addressees.read(connection), read_bindings(connection), version)

    def direct(self, send: Send, orchestration: DeployedOrchestration) -> Message:
        """Return the message of a send, directed to the port that its logical port is bound to. Raise NotFound if there
        is no such port, and StateError if the message is a request and the port is one-way."""
        port = None if send.port is None else self._find(orchestration, send.port)
        if port is None:
            return send.message
        if send.call == "request":
            self._addressees.check_two_way(port)
        return Message(
            context=self._addressees.direct(port, send.message.context),
            parts=send.message.parts,
            body_part_name=send.message.body_part_name,
            message_id=send.message.message_id,
        )

    def build_filter(self, command: Correlate, orchestration: DeployedOrchestration) -> Filter:
        """Return the filter of a correlation set. A message that is directed to a port has other subscribers too, whose
        acknowledgements do not count."""
        logical_port = command.acknowledged_by
        port = None if logical_port is None else self._find(orchestration, logical_port)
        port_id = None if port is None else self._addressees.find_acknowledging_port(port)
        return command.filter if port_id is None else command.filter & (BTS.AckSendPortID == str(port_id))

    def _find(self, orchestration: DeployedOrchestration, logical_port: str) -> str | uuid.UUID | None:
        """Return the name or the id of the send port or group that a logical port is bound to, or None if it is bound
        directly."""
        target, _ = find_target(orchestration.name, logical_port, orchestration.declared_bindings, self._bound_ids)
        return target
