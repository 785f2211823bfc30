"""The transports of a send port: the settings of both, and the backup transport, as a user declares it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from postroom.adapters.kinds import StoredSendAdapter
from postroom.application.retry import Retry
from postroom.application.schedule import Schedule
from postroom.stored_definitions import DeclaredValue


class TransportSettings(BaseModel):
    """The settings of a transport, apart from its adapter."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    retry: Retry = Retry()
    service_window: Schedule | None = None
    """When the transport sends. None: at any time."""


class BackupTransport(TransportSettings, DeclaredValue):
    """Sends what the port's own adapter could not send: ``BackupTransport(adapters.File("out/late"))`` (SND-06).

    It is used when the retries of the port are used up, and has its own retries and service window.
    """

    adapter: StoredSendAdapter = Field(kw_only=False)
