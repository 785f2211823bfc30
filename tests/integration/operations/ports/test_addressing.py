"""Directing messages by the name of a send port or a send port group (CTX-21, SUB-11, SUB-13)."""

from __future__ import annotations

import pytest

from postroom.adapters.dynamic.definition import Dynamic
from postroom.agent.addressing import direct_context
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.errors import NotFound
from postroom.message import Context, Message
from postroom.messagebox.connection import connect
from postroom.system_properties import BTS
from tests.support.box import Box, Region
from tests.support.contents import Contents


@pytest.fixture
def directed(box: Box) -> Box:
    box.add_port("Static", "Region == 'never'")
    box.add_port("Anywhere", adapter=Dynamic().model_dump(mode="json"))
    box.add_port("Greedy", "exists(Region)")
    box.add_group("Everyone", ["Static", "Greedy"])
    return box


@pytest.mark.parametrize(
    ("name", "promoted", "subscribers"),
    [
        ("Static", {BTS.SPTransportID, BTS.SPID}, ("Greedy", "Static")),
        ("Anywhere", {BTS.SPID}, ("Anywhere", "Greedy")),
        ("Everyone", {BTS.SPGroupID}, ("Greedy", "Greedy", "Static")),
    ],
)
def test_directing_promotes_the_ids_of_the_port_or_the_group(
    directed: Box, name: str, promoted: set[object], subscribers: tuple[str, ...]
) -> None:
    """The port's own filter does not apply (SUB-13), and other subscribers get the message, too (SUB-11)."""
    context = direct_context(directed.connection, name, Context().promote(Region, "EU"))
    assert {prop for prop in context if context.is_promoted(prop)} == {Region, *promoted}
    [published] = directed.agent().publish([Message(context=context)])
    assert published.subscribers == subscribers


def test_an_outbound_address_is_promoted_unless_it_is_too_long(directed: Box) -> None:
    context = Context().write(BTS.OutboundTransportLocation, "file:out/a").write(BTS.OutboundTransportType, "FILE")
    context = direct_context(directed.connection, "Anywhere", context)
    assert context.is_promoted(BTS.OutboundTransportLocation)
    assert context.is_promoted(BTS.OutboundTransportType)
    long = Context().write(BTS.OutboundTransportLocation, "https://example.com/" + "a" * 300)
    long = direct_context(directed.connection, "Anywhere", long)
    assert not long.is_promoted(BTS.OutboundTransportLocation)
    assert str(long[BTS.OutboundTransportLocation]).endswith("a")


def test_an_unknown_addressee_is_reported_with_suggestions(directed: Box) -> None:
    with pytest.raises(NotFound) as caught:
        direct_context(directed.connection, "Nobody", Context())
    assert caught.value.hint == "There are: Anywhere, Everyone, Greedy, Static."


@pytest.mark.parametrize("name", ["Static", "Anywhere", "Everyone"])
def test_a_host_can_direct_messages_to_ports_of_other_hosts_and_to_groups(directed: Box, name: str) -> None:
    """A host may direct messages to ports whose configuration it cannot read."""
    other = directed.add_host("Other")
    with connect(directed.url, user=other.role_name) as host:
        context = direct_context(host, name, Context().promote(Region, "EU"))
        assert context == direct_context(directed.connection, name, Context().promote(Region, "EU"))
        [published] = DirectAgent(host, other).publish([Message(context=context)])
        assert name in (*published.subscribers, "Everyone")
        assert Contents(host).count("send ports") == 0
