"""Idempotency keys of programs: which hosts share them, and what a key gets that is used again later."""

from __future__ import annotations

import pytest

from postroom.agent.direct.direct_agent import DirectAgent
from postroom.errors import KeyReused, NotAllowed
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from tests.support.box import Box, Region
from tests.support.contents import Contents


def order(body: bytes = b"order") -> Message:
    return Message.of(body, promoted={Region: "EU"})


def publish_as(box: Box, login: str, body: bytes, *, host: str | None = None) -> bool:
    """Publish with the login of a host under the key. Return True if the key was used before."""
    with connect(box.url, user=box.host(login).role_name) as connection:
        [published] = DirectAgent(connection, box.host(host or login)).publish([order(body)], key="order-1")
    return published.repeated


def test_the_logins_of_two_hosts_have_their_own_keys(box: Box) -> None:
    box.add_host("Other")
    box.add_port("Europe", "Region == 'EU'")
    assert not publish_as(box, "Other", b"squatted", host="Default")
    assert not publish_as(box, "Default", b"order")
    assert publish_as(box, "Default", b"order")
    assert publish_as(box, "Other", b"squatted")
    with pytest.raises(KeyReused):
        publish_as(box, "Default", b"another order")


def test_a_host_cannot_read_the_secret_of_another_host(box: Box) -> None:
    box.add_host("Other")
    with connect(box.url, user=box.host("Other").role_name) as connection:
        secrets = {
            connection.execute("SELECT read_key_secret(%s::smallint)", (box.host(name).host_id,)).fetchone()
            for name in ("Default", "Other")
        }
        assert secrets == {(box.read_key_secret(box.host("Other").host_id),)}
        with pytest.raises(NotAllowed):
            Contents(connection).read_key_secret(box.host().host_id)


@pytest.mark.parametrize("messages", [1, 6])
def test_a_key_that_is_used_again_after_its_receipt_was_purged_gets_new_instances(box: Box, messages: int) -> None:
    box.add_port("Europe", "Region == 'EU'")
    for _ in range(2):
        box.agent().publish([order() for _ in range(messages)], key="order-1")
        box.delete_all("receipts")
    assert len({row.instance_id for row in box.instances()}) == 2 * messages
    assert check(box.connection) == []
