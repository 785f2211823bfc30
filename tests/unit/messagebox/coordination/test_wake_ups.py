"""A publisher in a host process wakes its own instance directly."""

from __future__ import annotations

from typing import cast

from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.notifications import OwnHost, WakeUp


class _Notifications:
    """A connection that records the channels of its notifications."""

    def __init__(self) -> None:
        self.channels: list[list[str]] = []

    def execute(self, query: str, arguments: tuple[list[str]]) -> None:
        self.channels.append(arguments[0])


def test_the_own_instance_is_woken_each_time_and_the_others_are_notified_once_in_a_moment() -> None:
    connection = _Notifications()
    woken: list[str] = []
    own_host = OwnHost(name="Orders", wake=lambda: woken.append("Orders"))
    for _ in range(3):
        # A publisher of two-way messages has a new wake-up for each message.
        WakeUp(cast(Connection, connection), own_host).send(["orders"])
    assert woken == ["Orders"] * 3
    assert connection.channels == [["postroom_orders"]]


def test_other_hosts_are_notified() -> None:
    connection = _Notifications()
    own_host = OwnHost(name="Orders", wake=lambda: None)
    WakeUp(cast(Connection, connection), own_host).send(["billing"])
    assert connection.channels == [["postroom_billing"]]
