from __future__ import annotations

from tests.integration.hosts.conftest import start_host as start_host
