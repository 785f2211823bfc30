"""Applications: what a user declares, checks of it, and the definition that is stored."""

from __future__ import annotations

from postroom.application.application import Application
from postroom.application.backup_transport import BackupTransport
from postroom.application.checks.conflicts import conflicts
from postroom.application.circuit_breaker import CircuitBreaker
from postroom.application.definition import (
    DEFAULT_HOST,
    ApplicationDefinition,
    HostDefinition,
    LookupDefinition,
    OrchestrationDefinition,
    ReceiveLocationDefinition,
    ReceivePortDefinition,
    SendPortDefinition,
    SendPortGroupDefinition,
    SendPortState,
)
from postroom.application.handler import Handler
from postroom.application.loading.load import load
from postroom.application.retry import Retry
from postroom.application.schedule import Schedule
from postroom.throttling import Throttling

__all__ = [
    "DEFAULT_HOST",
    "Application",
    "ApplicationDefinition",
    "BackupTransport",
    "CircuitBreaker",
    "Handler",
    "HostDefinition",
    "LookupDefinition",
    "OrchestrationDefinition",
    "ReceiveLocationDefinition",
    "ReceivePortDefinition",
    "Retry",
    "Schedule",
    "SendPortDefinition",
    "SendPortGroupDefinition",
    "SendPortState",
    "Throttling",
    "conflicts",
    "load",
]
