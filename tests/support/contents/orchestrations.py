"""The instances of orchestrations, and their messages and journals."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.instances import InstanceState
from tests.support.contents.statements import Statements


@dataclass(frozen=True, kw_only=True)
class OrchestrationInstance:
    instance_id: uuid.UUID
    service_id: uuid.UUID
    journal_length: int
    journals: int
    carried: Any
    wake_at: datetime | None
    is_claimed: bool
    is_suspended: bool
    error_code: str | None
    error_description: str | None


@dataclass(frozen=True, kw_only=True)
class OrchestrationMessage:
    """A message of an orchestration instance."""

    instance_id: uuid.UUID
    is_received: bool
    is_stored: bool


class Orchestrations(Statements):
    """The instances of orchestrations, and their messages and journals."""

    def orchestration_instances(self) -> list[OrchestrationInstance]:
        return self._read(
            OrchestrationInstance,
            "SELECT instance_id, service_id, journal_length, journals, carried, wake_at,"
            " claim_id IS NOT NULL AS is_claimed, suspended_at IS NOT NULL AS is_suspended, error_code,"
            " error_description FROM orchestration_instances ORDER BY created_at, instance_id",
        )

    def running_orchestrations(self) -> list[uuid.UUID]:
        """Return the instances of orchestrations whose messages can still be received, or are queued."""
        rows = self.connection.execute(
            "SELECT instance_id FROM instances WHERE service_class = %s AND state <> %s",
            (ServiceClass.ORCHESTRATIONS, InstanceState.SUSPENDED_NOT_RESUMABLE),
        )
        return [instance_id for (instance_id,) in rows]

    def read_orchestration_error(self) -> str:
        """Return the description of the error of the first orchestration instance that has one."""
        return next(one.error_description for one in self.orchestration_instances() if one.error_description)

    def orchestration_messages(self) -> list[OrchestrationMessage]:
        return self._read(
            OrchestrationMessage,
            "SELECT instance_id, consumed_in IS NOT NULL AS is_received, s.message_id IS NOT NULL AS is_stored"
            " FROM orchestration_messages LEFT JOIN spool s USING (message_id) ORDER BY seq",
        )

    def find_last_received(self) -> int:
        """Return the number of the last journal entry that received a message, or 0."""
        return int(self.one("SELECT coalesce(max(consumed_in), 0) FROM orchestration_messages"))

    def add_suspended_orchestration(self, error_code: str) -> None:
        """Add a suspended instance of each deployed orchestration."""
        self.connection.execute(
            "INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, suspended_at,"
            " error_code) SELECT gen_random_uuid(), host_id, id, 7, now(), now(), %s FROM orchestrations",
            (error_code,),
        )

    def journal(self) -> list[Any]:
        """Return the turns of all journals."""
        rows = self.connection.execute("SELECT turns FROM orchestration_journal ORDER BY number")
        return [turn for (turns,) in rows for turn in turns]

    def damage_journals(self) -> None:
        """Replace all journals by something that is none."""
        self.connection.execute("""UPDATE orchestration_journal SET turns = '[{"time": "never"}]'""")

    def claim_orchestration(self, instance_id: uuid.UUID) -> None:
        """Let another claim take an orchestration instance."""
        self.connection.execute(
            "UPDATE orchestration_instances SET claim_id = gen_random_uuid() WHERE instance_id = %s", (instance_id,)
        )

    def release_orchestrations(self) -> None:
        """Let all orchestration instances be ready to be claimed."""
        self.connection.execute("UPDATE orchestration_instances SET claim_id = NULL, ready_seq = 1")

    def orchestration_ids(self) -> list[uuid.UUID]:
        """Return the ids of the deployed orchestrations."""
        return [found for (found,) in self.connection.execute("SELECT id FROM orchestrations")]

    def set_process_deaths(self, deaths: int) -> None:
        self.connection.execute(
            "UPDATE orchestration_instances SET process_deaths = %s WHERE suspended_at IS NULL", (deaths,)
        )
