"""Deployed ports, locations, hosts and subscriptions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

from psycopg import sql
from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.ports.send_ports import SendPort, read_send_ports
from tests.support.contents.statements import Statements

#: The columns of ports and locations that are no part of a definition.
_COLUMNS = {"host_id", "uri", "backup_uri", "enabled", "schedule", "state", "subscription_id"}


@dataclass(frozen=True, kw_only=True)
class Subscription:
    id: int
    service_class: str
    service_id: uuid.UUID
    service_name: str
    instance_id: uuid.UUID | None
    priority: int
    ordered: bool
    request_response: bool
    group_id: uuid.UUID | None
    for_host_instance: int | None


class Configuration(Statements):
    """Deployed ports, locations, hosts and subscriptions."""

    def port(self, name: str | None = None) -> SendPort:
        """Return the send port of that name, or the only one."""
        [port] = [port for port in read_send_ports(self.connection) if name in (None, port.name)]
        return port

    def subscriptions(self, *, with_removed: bool = False) -> list[Subscription]:
        """Return the subscriptions, with those that are removed and not purged yet if wanted."""
        return self._read(
            Subscription,
            "SELECT id, service_class, service_id, service_name, instance_id, priority, ordered, request_response,"
            " group_id, for_host_instance FROM subscriptions WHERE removed_at IS NULL OR %s ORDER BY id",
            with_removed,
        )

    def remove_subscriptions(self) -> None:
        """Let all subscriptions have been removed a day ago."""
        self.connection.execute("UPDATE subscriptions SET removed_at = now() - interval '1 day'")

    def subscriptions_of_orchestrations(self) -> list[Subscription]:
        return [one for one in self.subscriptions() if one.service_class == ServiceClass.ORCHESTRATIONS]

    def set_dequeuing(
        self,
        service_class: ServiceClass | None = None,
        *,
        threads: int | None = None,
        interval: timedelta | None = None,
    ) -> None:
        """Change the dequeuing of one service class or of all, also to values that operators cannot choose."""
        self.connection.execute(
            "UPDATE service_classes SET dequeue_threads = coalesce(%s, dequeue_threads),"
            " polling_interval = coalesce(%s, polling_interval) WHERE name = coalesce(%s, name)",
            (threads, interval, service_class),
        )

    def set_ports(self, name: str | None = None, **columns: Any) -> None:
        """Change what is stored of one send port or of all. It need not be valid."""
        self._set_artifacts("send_ports", name, columns)
        if "two_way" in columns:
            self.connection.execute(
                "UPDATE services SET two_way = %s WHERE kind = 'send port' AND name = coalesce(%s, name)",
                (columns["two_way"], name),
            )

    def set_port_states(self, state: ServiceState) -> None:
        """Change the states of all send ports, and not their subscriptions."""
        self.connection.execute("UPDATE services SET state = %s WHERE kind = 'send port'", (state.value,))

    def merge_port(self, name: str | None = None, *, adapter: dict[str, Any]) -> None:
        """Change settings of the adapter of one send port or of all."""
        self.connection.execute(
            "UPDATE send_ports SET definition = jsonb_set(definition, '{adapter}', definition -> 'adapter' || %s)"
            " WHERE name = coalesce(%s, name)",
            (Jsonb(adapter), name),
        )

    def move_port(self, name: str, host_id: int) -> None:
        """Let another host serve a send port. Its queued messages stay in the queue of the former host."""
        self.connection.execute("UPDATE send_ports SET host_id = %s WHERE name = %s", (host_id, name))
        self.connection.execute(
            "UPDATE services SET host_id = %s, former_host_ids = former_host_ids || host_id WHERE name = %s",
            (host_id, name),
        )

    def set_locations(self, name: str | None = None, **columns: Any) -> None:
        """Change what is stored of one receive location or of all. It need not be valid."""
        self._set_artifacts("receive_locations", name, columns)
        if "host_id" in columns:
            self.connection.execute(
                "UPDATE services SET host_id = %s WHERE kind = 'location' AND name = coalesce(%s, name)",
                (columns["host_id"], name),
            )

    def merge_locations(
        self, name: str | None = None, *, adapter: dict[str, Any] | None = None, pipeline: dict[str, Any] | None = None
    ) -> None:
        """Change settings of the adapter and the pipeline of one receive location or of all."""
        self.connection.execute(
            "UPDATE receive_locations SET definition = definition || jsonb_build_object("
            "'adapter', definition -> 'adapter' || %s, 'pipeline', definition -> 'pipeline' || %s)"
            " WHERE name = coalesce(%s, name)",
            (Jsonb(adapter or {}), Jsonb(pipeline or {}), name),
        )

    def set_authentication(self, authentication: str) -> None:
        """Change the authentication of all receive ports."""
        self.set_receive_ports(authentication=authentication)

    def set_receive_ports(self, **settings: Any) -> None:
        """Change settings of all receive ports."""
        self._set_artifacts("receive_ports", None, settings)

    def _set_artifacts(self, table: LiteralString, name: str | None, values: dict[str, Any]) -> None:
        """Change columns, and settings of the stored definition, of the row of that name or of all rows."""
        settings = {key: value for key, value in values.items() if key not in _COLUMNS}
        columns = {key: value for key, value in values.items() if key in _COLUMNS}
        if columns:
            self._set(table, name, columns)
        self.connection.execute(
            sql.SQL("UPDATE {} SET definition = definition || %s WHERE name = coalesce(%s, name)").format(
                sql.Identifier(table)
            ),
            (Jsonb(settings), name),
        )

    def add_host_property(self, host_id: int, key: str, value: str) -> None:
        """Give a host a property that messages can require."""
        self.connection.execute("INSERT INTO application_properties VALUES (%s, %s, %s)", (host_id, key, value))

    def remove_host_properties(self, host_id: int) -> None:
        self.connection.execute("DELETE FROM application_properties WHERE host_id = %s", (host_id,))

    def remove_port(self, name: str | None = None) -> uuid.UUID:
        """Delete a send port, as if it had no messages, and return its id."""
        port = self.port(name)
        port_id: uuid.UUID = port.port_id
        self.connection.execute("DELETE FROM send_ports WHERE id = %s", (port_id,))
        return port_id

    def add_removed_port(self, port_id: uuid.UUID, name: str, *, two_way: bool = False) -> None:
        """Record a removed send port whose messages are kept."""
        self.connection.execute(
            "UPDATE services SET removed_at = now(), two_way = %s WHERE id = %s AND name = %s",
            (two_way, port_id, name),
        )

    def removed_services(self) -> list[tuple[str, bool]]:
        """Return the names of the removed services, and whether they were two-way."""
        rows = self.connection.execute("SELECT name, two_way FROM services WHERE removed_at IS NOT NULL ORDER BY name")
        return [(name, two_way) for name, two_way in rows]

    def refuse_port(self, name: str) -> None:
        """Let a deployment fail when it stores the send port of this name."""
        self.connection.execute(
            sql.SQL("ALTER TABLE send_ports ADD CONSTRAINT refuse CHECK (name <> {})").format(sql.Literal(name))
        )

    def host_properties(self, host_id: int) -> set[tuple[str, str]]:
        """Return the keys and values of the properties of a host."""
        rows = self.connection.execute(
            "SELECT property_key, value FROM application_properties WHERE host_id = %s", (host_id,)
        )
        return {(key, value) for key, value in rows}

    def sensitive_properties(self) -> set[str]:
        return {key for (key,) in self.connection.execute("SELECT key FROM properties WHERE sensitive")}

    def set_sensitive(self, key: str) -> None:
        self.connection.execute("UPDATE properties SET sensitive = true WHERE key = %s", (key,))

    def read_applied_at(self) -> datetime:
        """Return when the only application was applied."""
        applied_at: datetime = self.one("SELECT applied_at FROM applications")
        return applied_at

    def add_audit_entry(self, **columns: Any) -> None:
        """Add an entry with other columns, which no login can write."""
        values = {"action": "a", "target": "b", **columns}
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        places = sql.SQL(", ").join(sql.Placeholder() * len(values))
        statement = sql.SQL("INSERT INTO audit ({}) VALUES ({})").format(names, places)
        self.connection.execute(statement, list(values.values()))

    def read_key_secret(self, host_id: int) -> uuid.UUID:
        """Return the secret that the units of idempotency keys of a host are derived from."""
        secret: uuid.UUID = self.one("SELECT secret FROM key_secrets WHERE host_id = %s", host_id)
        return secret

    def read_id(self) -> str:
        """Return the id of the MessageBox."""
        return str(self.one("SELECT id FROM message_box"))
