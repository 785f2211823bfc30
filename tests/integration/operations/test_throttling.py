"""The throttling of hosts is listed with its reason, and an override is recorded in the audit (THR-08)."""

from __future__ import annotations

import pytest

from postroom import Throttling
from postroom.errors import BadValue
from postroom.messagebox.audit import list_audit
from postroom.messagebox.configuration.hosts import find_host
from postroom.operations.throttling import list_throttling, set_override
from postroom.throttling import OverrideMode
from tests.support.box import Box
from tests.support.host_settings import set_thresholds
from tests.support.simulated_load import set_load


def test_the_publishing_of_each_host_is_listed_with_its_reason(box: Box) -> None:
    box.add_host("Other")
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10))
    set_load(box, queued=15)
    default, other = list_throttling(box.connection)
    assert (default.host, default.direction, default.process, default.override) == ("Default", "publishing", "", "auto")
    assert (default.state, default.description, default.delay) == (6, "database size", 150)
    assert default.reason == "15 messages are in the queues; the threshold is 10"
    assert (other.host, other.state, other.description, other.reason) == ("Other", 0, "not throttled", "")


def test_an_override_is_recorded_and_replaces_the_state(box: Box) -> None:
    set_override(box.connection, "default", publishing=OverrideMode.ALWAYS, severity=500)
    set_override(box.connection, "Default", delivery=OverrideMode.NEVER)
    [listed] = list_throttling(box.connection)
    assert (listed.state, listed.delay, listed.override) == (11, 150, "always, severity 500")
    overrides = find_host(box.connection, "Default").overrides
    assert (overrides.publishing.mode, overrides.delivery.mode) == (OverrideMode.ALWAYS, OverrideMode.NEVER)
    newest = list_audit(box.connection)[0]
    assert (newest.action, newest.target) == ("throttling.set", "Default")
    assert newest.after is not None
    assert newest.after["delivery"] == {"mode": "never", "severity": 100}
    with pytest.raises(BadValue, match="must be from 1 to"):
        set_override(box.connection, "Default", publishing=OverrideMode.ALWAYS, severity=0)
