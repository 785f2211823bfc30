"""Send pipelines, maps, orchestrations and programs read lookups."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import postroom
from postroom.application import load
from postroom.application.loading.load import load_orchestrations
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.orchestrations.journals import save_journal
from postroom.operations.orchestrations.story import read_story
from tests.integration.lookups.conftest import StoreCustomer
from tests.support.lookups import CustomerId, Kind, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

SHOP = """
from postroom import Application, Message, Property, adapters, lookup, maps, orchestrations, pipelines

Kind = Property("Crm.Kind", str)
CustomerId = Property("Crm.CustomerId", str)
Name = Property("Crm.Name", str)
app = Application("shop")
app.property(Kind, CustomerId)


def find_name(message: Message) -> bytes:
    customer = lookup("Customers").get(message.context[CustomerId])
    return b"unknown" if customer is None else customer.data


def add_name(message: Message) -> bytes:
    return message.data + b" for " + find_name(message)
"""

SEND_PIPELINE = """
app.send_port("Out", adapters.Null(), filter=Kind == "order", pipeline=pipelines.Send(encode=[add_name]))
"""

ORCHESTRATION = """
app.send_port("Out", adapters.Null())
Payments = orchestrations.Correlation(CustomerId, filter=Kind == "payment")


@app.orchestration(activate=Kind == "order", correlations=[Payments])
async def ship(order: Message) -> None:
    before = find_name(order)
    await Payments.of(order).receive()
    await orchestrations.send(Message.of(before + b" " + find_name(order)), to="Out")
"""


def apply_shop(connection: Connection, folder: Path, code: str) -> Path:
    file = folder / "shop.py"
    file.write_text(SHOP + textwrap.dedent(code))
    apply(connection, load(file), home=folder)
    wait_until_taken(connection, ["Main"])
    return file


def build_order(kind: str = "order", body: bytes = b"order") -> Message:
    return Message.of(body, promoted={Kind: kind, CustomerId: "C-1"})


def sent(recorder: RecordingAdapter) -> list[bytes]:
    return [one.body for one in recorder.sent]


def test_a_component_of_a_send_pipeline_reads_the_lookup_of_another_application(
    connection: Connection, store: StoreCustomer, tmp_path: Path, recorder: RecordingAdapter
) -> None:
    apply_shop(connection, tmp_path, SEND_PIPELINE)
    store("C-1", b"Acme")
    publish(connection, build_order())
    wait_until(lambda: sent(recorder) == [b"order for Acme"])


def test_a_running_host_sees_an_update(
    connection: Connection, store: StoreCustomer, tmp_path: Path, recorder: RecordingAdapter
) -> None:
    """The first order reads the customer into the cache. After the update orders get the new one soon."""
    apply_shop(connection, tmp_path, SEND_PIPELINE)
    store("C-1", b"Acme")
    publish(connection, build_order())
    wait_until(lambda: sent(recorder) == [b"order for Acme"])
    store("C-1", b"Bolt")

    def has_new_name() -> bool:
        count = len(recorder.sent)
        publish(connection, build_order())
        wait_until(lambda: len(recorder.sent) > count)
        return sent(recorder)[-1] == b"order for Bolt"

    wait_until(has_new_name)


def test_an_orchestration_keeps_what_it_has_looked_up(
    connection: Connection,
    store: StoreCustomer,
    instance: HostInstance,
    tmp_path: Path,
    recorder: RecordingAdapter,
    database: str,
) -> None:
    """The host that started the instance has ended. Another host replays it, and gets the entry of the journal."""
    file = apply_shop(connection, tmp_path, ORCHESTRATION)
    store("C-1", b"Acme")
    publish(connection, build_order())
    wait_until(lambda: instance.orchestration_counts["waiting"] == 1)
    store("C-1", b"Bolt")
    [waiting] = list_instances(connection, InstanceQuery())
    story = read_story(connection, waiting.instance_id)
    assert story is not None
    assert story.story is not None
    assert "looked up Customers, and found an entry" in [line.what for line in story.story]
    saved = tmp_path / "journal.json"
    save_journal(connection, waiting.instance_id, saved)
    postroom.testing.replay(load_orchestrations(file)["ship", 1], saved)
    instance.stop()
    with HostInstance(database, "Main", tmp_path, as_role=True, build_adapter=recorder.build) as other:
        publish(connection, build_order("payment"))
        wait_until(lambda: other.orchestration_counts["completed"] == 1)
        wait_until(lambda: sent(recorder) == [b"Acme Bolt"])


def test_programs_read_lookups(database: str, store: StoreCustomer) -> None:
    store("C-1", b"Acme")
    with postroom.connect(database) as client:
        customer = client.lookup("Customers").get("C-1")
        assert customer is not None
        assert customer.data == b"Acme"
        assert client.lookup("Customers").get("C-2") is None

    async def read() -> bytes:
        async with await postroom.connect_async(database) as client:
            entry = await client.lookup("Customers").get("C-1")
            assert entry is not None
            return entry.data

    assert asyncio.run(read()) == b"Acme"
