"""`postroom orchestration`: the states of orchestrations. `postroom instance`: their stories and journals."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom import testing
from postroom.application.loading.load import load_orchestrations
from postroom.cli.exit_codes import ExitCode
from postroom.hosts import HostInstance
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_instances_of_host, list_instances
from postroom.orchestrations import JournalMismatch
from tests.integration.cli.conftest import Run
from tests.integration.hosts.conftest import SETTINGS
from tests.support.contents import Contents
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

APP = """
import asyncio
from postroom import Application, Message, Property, adapters, orchestrations
from postroom.orchestrations import Correlation

Kind = Property("Shop.Kind", str)
OrderId = Property("Shop.OrderId", str)
Customer = Property("Shop.Customer", str, sensitive=True)
Payments = Correlation(OrderId, Customer, filter=Kind == "payment")
app = Application("shop")
app.property(Kind, OrderId, Customer)
app.send_port("Warehouse", adapters.Null())


def check() -> str:
    return "a secret value"


@app.orchestration(activate=Kind == "order", correlations=[Payments])
async def ship(order: Message) -> None:
    payments = Payments.of(order)
    await orchestrations.send(Message.of(b"reserve"), to="Warehouse")
    if order.data == b"check":
        await orchestrations.step(check)
        await asyncio.sleep(0.01)
        async with asyncio.timeout(3600):
            await payments.receive()
    await payments.receive()
    await orchestrations.send(Message.of(b"ship"), to="Warehouse")
"""

#: Sends through ports that it draws, and carries a number on.
DRAW = """

for number in range(3):
    app.send_port(f"Port{number}", adapters.Null())


@app.orchestration(activate=Kind == "draw", correlations=[Payments])
async def draw(first: Message) -> None:
    payments = Payments.of(first)
    if orchestrations.carried_state() is None:
        await orchestrations.continue_with({"seven": 7})
    for _ in range(10):
        drawn = orchestrations.random().randrange(3)
        await orchestrations.send(Message.of(orchestrations.new_id().bytes), to=f"Port{drawn}")
    await orchestrations.step(check)
    await payments.receive()
    assert orchestrations.carried_state() == {"seven": 7}
    await payments.receive()
"""


@pytest.fixture
def shop(run: Run, tmp_path: Path) -> Run:
    """Run `postroom` with a MessageBox that has an orchestration."""
    file = tmp_path / "shop.py"
    file.write_text(APP)
    assert run("apply", file).code == ExitCode.OK
    return run


@pytest.fixture
def recorder(database: str, tmp_path: Path, shop: Run) -> Iterator[RecordingAdapter]:
    """Run the host. Return what it sends."""
    recorder = RecordingAdapter()
    with HostInstance(database, "Main", tmp_path, settings=SETTINGS, as_role=True, build_adapter=recorder.build):
        yield recorder


def publish(run: Run, folder: Path, kind: str, text: str = "") -> None:
    body = folder / "body"
    body.write_text(text)
    assert run("publish", body, "-p", f"Kind={kind}", "-p", "OrderId=7", "-p", "Customer=Jane").code == ExitCode.OK


def sent(recorder: RecordingAdapter) -> list[bytes]:
    return [one.body for one in recorder.sent]


def test_activations_of_a_stopped_orchestration_are_suspended_and_continue_after_its_start(
    shop: Run, recorder: RecordingAdapter, tmp_path: Path
) -> None:
    [stopped] = shop("orchestration", "stop", "ship", "-o", "json").json
    assert (stopped["before"], stopped["after"]) == ("started", "stopped")
    publish(shop, tmp_path, "order")
    [suspended] = shop("instance", "list", "--state", "suspended", "-o", "json").json
    assert (suspended["error_code"], suspended["service"]) == ("PORT_STOPPED", "ship")
    assert "postroom orchestration start ship" in shop("instance", "show", suspended["instance_id"]).out
    assert shop("orchestration", "show", "ship", "-o", "json").json["suspended_messages"] == 1
    [started] = shop("orchestration", "start", "ship", "-o", "json").json
    assert (started["after"], started["resumed"]) == ("started", 1)
    wait_until(lambda: sent(recorder) == [b"reserve"], what="the activation")
    publish(shop, tmp_path, "payment")
    wait_until(lambda: sent(recorder) == [b"reserve", b"ship"], what="the end of the instance")


def test_an_unenlisted_orchestration_gets_no_messages_and_its_instances_continue(
    shop: Run, recorder: RecordingAdapter, database: str, tmp_path: Path
) -> None:
    """ORS-04, INS-03."""
    publish(shop, tmp_path, "order")
    wait_until(lambda: sent(recorder) == [b"reserve"], what="an instance")
    query = InstanceQuery(states=[InstanceState.DEHYDRATED])
    with connect(database) as connection:
        wait_until(lambda: list_instances(connection, query), what="the instance waits")
        counts = {count.state: count.instances for count in count_instances_of_host(connection, "Main")}
        assert (counts[InstanceState.DEHYDRATED], counts[InstanceState.RETRYING]) == (1, 0)
    [counted] = shop("instance", "list", "--group-by", "port", "--port", "ship", "-o", "json").json
    assert (counted["port"], counted["state"], counted["count"]) == ("ship", "waiting", 1)
    [listed] = shop("instance", "list", "--state", "waiting", "-o", "json").json
    assert listed["state"] == "waiting"
    assert shop("instance", "list", "--state", "retrying", "-o", "json").json == []
    assert shop("orchestration", "unenlist", "ship").code == ExitCode.OK
    [listed] = shop("orchestration", "list", "--application", "shop", "-o", "json").json
    assert (listed["state"], listed["instances"], listed["subscription_id"]) == ("bound", 1, None)
    (tmp_path / "body").write_text("")
    unroutable = shop("publish", tmp_path / "body", "-p", "Kind=order", "-p", "OrderId=8")
    assert unroutable.code != ExitCode.OK
    publish(shop, tmp_path, "payment")
    wait_until(lambda: sent(recorder) == [b"reserve", b"ship"], what="the end of the instance")


def test_the_instances_of_an_orchestration_without_a_subscription_can_be_listed_by_its_name(
    shop: Run, database: str
) -> None:
    assert shop("orchestration", "unenlist", "ship").code == ExitCode.OK
    with connect(database) as connection:
        connection.execute("SELECT purge_subscriptions('0')")
        assert "ship" not in [one.service_name for one in Contents(connection).subscriptions(with_removed=True)]
    listed = shop("instance", "list", "--port", "ship")
    assert (listed.code, listed.out.strip()) == (ExitCode.OK, "No instances.")
    unknown = shop("instance", "list", "--port", "shop")
    assert "There is no port, send port group, receive location or orchestration 'shop'." in unknown.err


def test_an_enlisted_orchestration_is_stopped_and_has_its_subscription(shop: Run) -> None:
    """ORS-01."""
    assert shop("orchestration", "unenlist", "ship").code == ExitCode.OK
    [enlisted] = shop("orchestration", "enlist", "ship", "-o", "json").json
    assert (enlisted["before"], enlisted["after"]) == ("bound", "stopped")
    [listed] = shop("orchestration", "list", "-o", "json").json
    subscriptions = shop("subscription", "list", "-o", "json").json
    [activation] = [one for one in subscriptions if one["subscription_id"] == listed["subscription_id"]]
    assert (activation["service_name"], activation["state"]) == ("ship", "stopped")


def test_a_logical_port_is_bound_shown_and_unbound(shop: Run) -> None:
    """ORC-13: the target is a send port, a group, or direct."""
    [bound] = shop("orchestration", "bind", "ship", "Warehouse", "--direct", "-o", "json").json
    assert bound == {"orchestration": "ship", "logical_port": "Warehouse", "before": "Warehouse", "after": "direct"}
    [binding] = shop("orchestration", "show", "ship", "-o", "json").json["bindings"]
    assert (binding["target"], binding["kind"], binding["bound_by"]) == ("direct", "direct", "operator")
    assert "direct" in shop("orchestration", "show", "ship").out
    [unbound] = shop("orchestration", "unbind", "ship", "Warehouse", "-o", "json").json
    assert unbound["after"] == "Warehouse"
    for arguments in ((), ("Warehouse", "--direct")):
        ran = shop("orchestration", "bind", "ship", "Warehouse", *arguments)
        assert ran.code == ExitCode.USAGE
        assert "Give either TARGET or --direct." in ran.err
    ran = shop("orchestration", "bind", "ship", "Warehouse", "Warehose")
    assert "There is no send port or send port group 'Warehose'." in ran.err
    assert "Did you mean Warehouse?" in ran.err


def test_a_change_that_the_state_does_not_allow_is_refused(shop: Run) -> None:
    ran = shop("orchestration", "start", "ship")
    assert ran.code == ExitCode.STATE
    assert "Orchestration 'ship' is already started." in ran.err
    ran = shop("orchestration", "stop", "shop")
    assert ran.code == ExitCode.NOT_FOUND
    assert "There is no orchestration 'shop'." in ran.err
    assert "ship" in ran.err


def test_the_story_of_an_instance_says_what_happened_and_what_it_waits_for(
    shop: Run, recorder: RecordingAdapter, database: str, tmp_path: Path
) -> None:
    def find_line(text: str) -> str:
        [number] = [number for number, line in enumerate(APP.splitlines(), 1) if text in line]
        return f"shop.py:{number}"

    publish(shop, tmp_path, "order", "check")
    with connect(database) as connection:
        contents = Contents(connection)

        def find_waiting() -> list[uuid.UUID]:
            limit = datetime.now(UTC) + timedelta(minutes=1)
            found = contents.orchestration_instances()
            return [one.instance_id for one in found if one.wake_at is not None and one.wake_at > limit]

        [instance_id] = wait_until(find_waiting, what="the instance waits")
    shown = shop("instance", "show", instance_id, "-o", "json").json
    assert (shown["state"], shown["retry_at"]) == ("waiting", None)
    assert shown["timer_at"] is not None
    expected = [
        ("activated by a message", None),
        ("subscribed to messages by Shop.Customer, Shop.Kind, Shop.OrderId", find_line("Payments.of")),
        ("sent a message to Warehouse", find_line('b"reserve"')),
        ("started step check", find_line("step(check)")),
        ("step check ended", find_line("step(check)")),
        ("started a timer", find_line("asyncio.sleep")),
        ("its timer was due", find_line("asyncio.sleep")),
        ("started a timer", find_line("asyncio.timeout")),
    ]
    assert [(line["what"], line["place"]) for line in shown["story"]] == expected
    assert shown["story"][0]["message_id"] == shown["message_id"]
    assert shown["story"][2]["message_id"] not in (None, shown["message_id"])
    assert all((line["due"] is not None) == (line["what"] == "started a timer") for line in shown["story"])
    times = [line["time"] for line in shown["story"]]
    assert times == sorted(times)
    messages, timer = shown["waits_for"]
    assert "Shop.OrderId == '7'" in messages["what"]
    assert timer["due"] > times[-1]
    assert "a secret value" not in str(shown)
    assert "Jane" not in str(shown)
    text = shop("instance", "show", instance_id).out
    assert "sent a message to Warehouse" in text
    assert "its next timer" in text
    graph = tmp_path / "story.mmd"
    assert shop("instance", "show", instance_id, "--graph", graph).code == ExitCode.OK
    drawn = graph.read_text()
    assert drawn.startswith("sequenceDiagram\n")
    for expected_text in (
        "activated by a message",
        "sent a message to Warehouse",
        "step check ended",
        "its next timer",
    ):
        assert expected_text in drawn
    assert "a secret value" not in drawn
    assert "Jane" not in drawn

    publish(shop, tmp_path, "payment")
    with connect(database) as connection:
        wait_until(lambda: Contents(connection).find_last_received() > 1, what="the payment received")
    story = shop("instance", "show", instance_id, "-o", "json").json["story"]
    assert story[len(expected)]["what"] == "received a message by Shop.Customer, Shop.Kind, Shop.OrderId"


def test_a_saved_journal_is_replayed_against_new_code(
    shop: Run, recorder: RecordingAdapter, database: str, tmp_path: Path
) -> None:
    app = tmp_path / "shop.py"
    app.write_text(APP + DRAW)
    assert shop("apply", app).code == ExitCode.OK
    publish(shop, tmp_path, "draw")
    with connect(database) as connection:
        contents = Contents(connection)

        def find_waiting() -> list[uuid.UUID]:
            found = contents.orchestration_instances()
            return [one.instance_id for one in found if not one.is_claimed and one.journals == 1]

        [instance_id] = wait_until(find_waiting, what="the instance waits")
        publish(shop, tmp_path, "payment", "paid")
        wait_until(lambda: contents.find_last_received() > 3, what="the payment received")

    file = tmp_path / "journal.json"
    saved = shop("instance", "save-journal", instance_id, file, "-o", "json").json
    assert (saved["orchestration"], saved["version"], saved["messages"]) == ("draw", 1, 2)
    assert saved["redacted"] == ["Shop.Customer"]
    assert "Jane" not in file.read_text()
    assert "a secret value" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    testing.replay(load_orchestrations(app)["draw", 1], file)

    app.write_text(APP + DRAW.replace("range(10)", "range(9)"))
    with pytest.raises(JournalMismatch, match="does not fit the journal at turn 1") as raised:
        testing.replay(load_orchestrations(app)["draw", 1], file)
    assert "The values of Shop.Customer are redacted" in raised.value.why

    ran = shop("instance", "save-journal", instance_id, file)
    assert (ran.code, "already exists" in ran.err) == (ExitCode.STATE, True)
    shown = shop("instance", "save-journal", instance_id, tmp_path / "again.json").out
    assert "2 messages of draw, version 1." in shown
    assert "redacted: Shop.Customer." in shown


def test_changed_code_that_a_waiting_instance_cannot_continue_with_is_applied_only_if_it_is_allowed(
    shop: Run, recorder: RecordingAdapter, database: str, tmp_path: Path
) -> None:
    """ORC-58."""
    publish(shop, tmp_path, "order")
    with connect(database) as connection:
        contents = Contents(connection)
        wait_until(lambda: contents.count("waiting orchestrations") == 1, what="a waiting instance")
        [instance] = contents.orchestration_instances()
    app = tmp_path / "shop.py"
    app.write_text(APP.replace('Message.of(b"reserve"), to="Warehouse"', 'Message.of(b"reserve")'))
    planned = shop("plan", app, "-o", "json")
    assert planned.code == ExitCode.REFUSED
    [incompatible] = planned.json["incompatible_instances"]
    assert incompatible["instance_id"] == str(instance.instance_id)
    assert (incompatible["orchestration"], incompatible["version"], incompatible["turn"]) == ("ship", 1, 1)
    assert incompatible["difference"].startswith("The journal has 'send Warehouse' (shop.py:")
    refused = shop("apply", app)
    assert refused.code == ExitCode.REFUSED
    assert f"{instance.instance_id}, turn 1: {incompatible['difference']}" in refused.err
    assert "use --allow-incompatible" in refused.err
    assert shop("plan", app, "--allow-incompatible").code == ExitCode.OK
    applied = shop("apply", app, "--allow-incompatible")
    assert applied.code == ExitCode.OK
    assert "one waiting instance cannot continue with the changed code, and will be suspended" in applied.out
    assert "use --allow-incompatible" not in applied.out, "it was used"


def test_a_messaging_instance_has_no_journal(shop: Run, tmp_path: Path) -> None:
    publish(shop, tmp_path, "order")
    [waiting] = shop("instance", "list", "-o", "json").json
    ran = shop("instance", "save-journal", waiting["instance_id"], tmp_path / "journal.json")
    assert ran.code == ExitCode.STATE
    assert "has no journal" in ran.err
    assert not (tmp_path / "journal.json").exists()


def test_a_messaging_instance_has_no_story(shop: Run, tmp_path: Path) -> None:
    publish(shop, tmp_path, "order")
    [waiting] = shop("instance", "list", "-o", "json").json
    assert "story" not in shop("instance", "show", waiting["instance_id"], "-o", "json").json
    ran = shop("instance", "show", waiting["instance_id"], "--graph", tmp_path / "story.mmd")
    assert ran.code == ExitCode.STATE
    assert "has no story" in ran.err


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('    {}["amount"]\n', "KeyError: 'amount'"),
        (
            '    try:\n        {}["amount"]\n    except KeyError as error:\n        raise TypeError("no") from error\n',
            "TypeError: no",
        ),
    ],
)
def test_instances_with_exceptions_are_listed_and_grouped_by_the_error(
    shop: Run, database: str, tmp_path: Path, line: str, reason: str
) -> None:
    app = tmp_path / "shop.py"
    app.write_text(APP.replace("    payments = Payments.of(order)\n", line, 1))
    assert shop("apply", app).code == ExitCode.OK
    suspended = InstanceQuery(states=[InstanceState.SUSPENDED])
    with HostInstance(database, "Main", tmp_path, settings=SETTINGS, as_role=True), connect(database) as connection:
        publish(shop, tmp_path, "order")
        wait_until(lambda: list_instances(connection, suspended), what="the suspended instance")
    [listed] = shop("instance", "list", "-o", "json").json
    assert listed["error_description"].startswith("Traceback (most recent call last):\n")
    assert listed["reason"] == reason
    [group] = shop("instance", "list", "--group-by", "reason", "-o", "json").json
    assert (group["reason"], group["count"]) == (reason, 1)
