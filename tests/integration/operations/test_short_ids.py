"""Ids that are shortened to a unique start."""

from __future__ import annotations

import uuid

import pytest

from postroom import BTS, Message
from postroom.errors import BadValue, NotFound
from postroom.operations.messages import resolve_message_id
from postroom.operations.short_ids import ShortId, ShortIdKind, find_id
from tests.support.box import Box, Region

INTERCHANGE = uuid.UUID("5c0a7a5e-0000-4000-8000-000000000001")


@pytest.mark.parametrize("text", ["", "abc", "xyz12", "5c0a7a5e-0000-4000-8000-0000000000012", "%'; --"])
def test_text_that_is_no_id_is_rejected(text: str) -> None:
    with pytest.raises(BadValue, match="is not an id"):
        ShortId.parse(text)


def test_an_id_can_be_shortened_to_a_unique_start(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    context = Message.of(promoted={Region: "EU"}, written={BTS.InterchangeID: str(INTERCHANGE)}).context
    message = Message(context=context, message_id=uuid.UUID("aaaa1111-0000-4000-8000-000000000001"))
    other = Message(context=context, message_id=uuid.UUID("aaaa1111-0000-4000-8000-000000000002"))
    lone = Message(context=context, message_id=uuid.UUID("bbbb2222-0000-4000-8000-000000000003"))
    for published in ([message, other], [lone]):
        box.agent().publish(published)
    instances = sorted(one.instance_id for one in box.instances())

    def find(text: str, kind: ShortIdKind) -> uuid.UUID:
        return find_id(box.connection, ShortId.parse(text), kind)

    assert find("5c0a7A5E-0000", "interchange") == INTERCHANGE
    assert find(str(instances[0]), "instance") == instances[0]
    [lone_instance] = [one.instance_id for one in box.instances() if one.message_id == lone.message_id]
    assert find(str(lone_instance)[:13], "instance") == lone_instance
    assert resolve_message_id(box.connection, ShortId.parse("bbbb2222")) == lone.message_id
    assert resolve_message_id(box.connection, ShortId.parse(str(other.message_id))) == other.message_id
    with pytest.raises(BadValue, match="More than one message has an id that starts with aaaa1111") as several:
        find("aaaa1111", "message")
    assert str(message.message_id) in several.value.why
    with pytest.raises(NotFound, match="No instance has an id that starts with cccc") as none:
        find("cccc", "instance")
    assert none.value.hint == "An instance is deleted when it completes or is terminated. See 'postroom instance list'."


def test_a_short_id_means_the_instance_and_not_its_routing_failure_report(box: Box) -> None:
    box.receive(box.add_location(), b'{"region": "NOWHERE"}')
    instance_id, report_id = box.resumable_row().instance_id, box.report().instance_id
    digits = str(instance_id)[:8]
    assert str(report_id).startswith(digits)
    assert find_id(box.connection, ShortId.parse(digits), "instance") == instance_id
    message_id = box.resumable_row().message_id
    assert find_id(box.connection, ShortId.parse(digits), "message") == message_id
    assert find_id(box.connection, ShortId.parse(str(report_id)), "instance") == report_id


def test_an_ambiguous_short_id_of_an_instance_lists_the_instances_with_their_ports_and_states(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Audit", "Region == 'EU'", state="stopped")
    box.agent().publish([Message.of(promoted={Region: "EU"})])
    instances = sorted(str(one.instance_id) for one in box.instances())
    with pytest.raises(BadValue, match="More than one instance has an id") as several:
        find_id(box.connection, ShortId.parse(instances[0][:8]), "instance")
    lines = several.value.why.splitlines()
    assert [line[:36] for line in lines] == instances
    assert {line[36:] for line in lines} == {": Europe, ready to run", ": Audit, suspended"}
