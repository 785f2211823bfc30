"""Journals of orchestrations: what they store, their limits, fresh journals, and code that does not fit."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from postroom import Message, orchestrations, testing
from postroom.errors import BadValue
from postroom.orchestrations import JournalLimits, JournalMismatch
from postroom.orchestrations.driver import replay
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Send, Started
from postroom.orchestrations.saved_journal import SavedJournal
from postroom.system_properties import BTS
from tests.support.offers import Offers, bodies, collect_offers, declare, message


def test_an_instance_continues_with_a_fresh_journal(crashes: bool) -> None:
    async def add_up(first: Message) -> None:
        total = orchestrations.carried_state() or 0
        offers = Offers.of(first)
        async with orchestrations.scope() as scope:
            scope.compensate_with(orchestrations.send, Message.of(b"never"))
            for _ in range(2):
                total += int((await offers.receive()).data)
            await orchestrations.send(Message.of(str(total).encode()))
            if total < 10:
                await orchestrations.continue_with(total)

    run = testing.start(declare(add_up), message("order"), crashes=crashes)
    for number in range(1, 5):
        run.publish(message("offer", str(number).encode()))
    assert run.has_ended
    assert bodies(run) == [b"3", b"10"]
    assert len({sent.message.message_id for sent in run.sent}) == 2
    assert len(run.journal) == 3


async def receive_offers(order: Message) -> None:
    offers = Offers.of(order)
    for _ in range(5):
        await orchestrations.send(Message.of((await offers.receive()).data))


def test_an_instance_whose_journal_is_full_is_suspended_and_finishes_with_higher_limits(crashes: bool) -> None:
    full = replace(declare(receive_offers), journal_limits=JournalLimits(events=3))
    run = testing.start(full, message("order"), crashes=crashes)
    for number in range(1, 4):
        run.publish(message("offer", b"%d" % number))
    assert bodies(run) == [b"1", b"2"]
    assert len(run.journal) == 3
    assert [one.data for one in run.unreceived_messages] == [b"3"]
    assert "3 events" in str(run.error)
    assert "continue_with" in str(run.error)
    testing.replay(replace(full, journal_limits=JournalLimits()), run.save_journal())


def test_an_instance_that_only_waits_is_not_suspended_when_its_journal_is_full() -> None:
    full = replace(declare(receive_offers), journal_limits=JournalLimits(events=1))
    run = testing.start(full, message("order"))
    assert run.error is None
    run.publish(message("offer", b"1"))
    assert isinstance(run.error, str)


def test_large_results_of_steps_fill_the_journal_and_the_last_one_is_kept() -> None:
    async def read(order: Message) -> None:
        for _ in range(5):
            await orchestrations.step(lambda: "x" * 1_000)

    run = testing.start(replace(declare(read), journal_limits=JournalLimits(size=2_500)), message("order"))
    assert "characters" in str(run.error)
    assert [turn["event"]["kind"] for turn in run.journal] == ["started", "step", "step"]


def test_a_state_that_is_larger_than_the_journal_is_refused() -> None:
    async def read(order: Message) -> None:
        try:
            await orchestrations.continue_with("x" * 1_000)
        except BadValue as error:
            await orchestrations.send(Message.of(error.what.encode()))

    run = testing.start(replace(declare(read), journal_limits=JournalLimits(size=900)), message("order"))
    assert bodies(run)[0].startswith(b"The state has 1,002 characters")


def test_the_journal_has_the_ids_of_sent_messages_and_the_times_of_timers() -> None:
    run = testing.start(declare(collect_offers), message("order"))
    _, sent, timer = run.journal[0]["commands"]
    assert sent["message"] == str(run.sent[0].message.message_id)
    assert timer["due"] == "2026-01-01T00:01:00+00:00"


@pytest.mark.parametrize("new_limit", [20, 300])
def test_a_timer_of_the_journal_keeps_its_time_if_the_code_has_another_limit(new_limit: float) -> None:
    async def wait(order: Message, limit: float = 40) -> None:
        async with asyncio.timeout(limit):
            await Offers.of(order).receive()

    async def wait_differently(order: Message) -> None:
        await wait(order, new_limit)

    journal = testing.start(declare(wait), message("order")).save_journal()
    execution = replay(declare(wait_differently), journal.instance_id, journal.read_turns())
    assert [due.second for due, _ in execution.list_timers()] == [40]
    execution.close()


def test_the_place_of_a_command_in_a_task_of_postroom_is_the_line_that_created_the_task(crashes: bool) -> None:
    async def wait(order: Message) -> None:
        deliveries = [orchestrations.deliver(Message.of(b""), to=port) for port in ("Acme", "Bolt")]
        await orchestrations.listen(orchestrations.delay(20), asyncio.gather(*deliveries))

    run = testing.start(declare(wait), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=20))
    line = wait.__code__.co_firstlineno + 2
    places = {command["place"] for turn in run.journal for command in turn["commands"]}
    assert places == {f"test_journal.py:{line}"}


def test_changed_code_is_found_with_its_place() -> None:
    async def procure(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b""), to="Bolt")

    order = message("order")
    run = testing.start(declare(procure), order)
    run.advance(timedelta(seconds=1))
    testing.replay(declare(procure), run.save_journal())

    async def ask_another(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b""), to="Cobra")

    with pytest.raises(JournalMismatch) as raised:
        testing.replay(declare(ask_another, version=2), run.save_journal())
    assert "ask_another, version 2, does not fit the journal at turn 2" in raised.value.what
    assert "The journal has 'send Bolt' (test_journal.py:" in raised.value.why
    assert "but the code does 'send Cobra' (test_journal.py:" in raised.value.why

    async def do_less(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")

    with pytest.raises(JournalMismatch, match="at turn 1") as raised:
        testing.replay(declare(do_less), run.save_journal())
    assert "does nothing more" in raised.value.why

    async def do_more(order: Message) -> None:
        await procure(order)
        await orchestrations.send(Message.of(b""), to="Acme")

    with pytest.raises(JournalMismatch, match="at turn 2") as raised:
        testing.replay(declare(do_more), run.save_journal())
    assert "which is not in the journal" in raised.value.why

    async def fail(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")
        asyncio.get_running_loop().call_later(1, print)
        raise KeyError

    with pytest.raises(JournalMismatch, match="at turn 1") as raised:
        testing.replay(declare(fail), run.save_journal())
    assert "The code now fails" in raised.value.why


def test_random_numbers_and_carried_state_of_a_saved_journal_are_replayed(tmp_path: Path) -> None:
    async def choose(first: Message) -> None:
        offers = Offers.of(first)
        total = (orchestrations.carried_state() or 0) + int((await offers.receive()).data)
        if total < 2:
            await orchestrations.continue_with(total)
        for _ in range(20):
            await orchestrations.send(Message.of(b""), to=orchestrations.random().choice(["Acme", "Bolt", "Cobra"]))
        await orchestrations.send(Message.of(b""), to=f"Port{total}-{orchestrations.new_id()}")
        await offers.receive()

    run = testing.start(declare(choose), message("order"))
    run.publish(message("offer", b"1"))
    run.publish(message("offer", b"1"))
    assert len(run.sent) == 21
    testing.replay(declare(choose), run.save_journal())
    file = tmp_path / "journal.json"
    file.write_text(json.dumps(run.save_journal().to_json()))
    testing.replay(declare(choose), file)
    assert SavedJournal.from_json(json.loads(file.read_text())) == run.save_journal()


def test_a_mismatch_names_the_properties_that_are_redacted_in_the_journal() -> None:
    async def wait(order: Message) -> None:
        await orchestrations.delay(1)

    async def end(order: Message) -> None:
        pass

    saved = replace(testing.start(declare(wait), message("order")).save_journal(), redacted=("Tests.OrderId",))
    with pytest.raises(JournalMismatch) as raised:
        testing.replay(declare(end), saved)
    assert "does nothing more" in raised.value.why
    assert "The values of Tests.OrderId are redacted" in raised.value.why


def test_a_file_that_is_no_journal_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    for content in ("", "[]", "{}", '{"orchestration": 1}'):
        file.write_text(content)
        with pytest.raises(BadValue, match="is not a saved journal"):
            testing.replay(declare(collect_offers), file)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        1.5,
        "text",
        b"bytes",
        Decimal("1.50"),
        uuid.UUID(int=7),
        timedelta(days=1, microseconds=3),
        [1, [2]],
        {"a": {"b": Decimal(1)}},
        (1, "two"),
    ],
)
def test_the_journal_stores_and_returns_values(value: object) -> None:
    """ORC-33: results of steps are data."""

    async def keep(order: Message) -> None:
        result = await orchestrations.step(lambda: value)
        await orchestrations.delay(1)
        assert result == value
        assert type(result) is type(value)

    run = testing.start(declare(keep), message("order"), crashes=True)
    run.advance(timedelta(seconds=1))
    assert (run.has_ended, run.error) == (True, None)


def test_ids_and_tokens_cannot_be_derived_from_the_id_of_the_instance() -> None:
    """All hosts can read the id of an instance that waits."""

    async def ask(order: Message) -> None:
        await orchestrations.request(message("question"), to="Pricing")

    def find_request(instance_id: uuid.UUID) -> Message:
        execution = Execution(declare(ask), instance_id)
        commands = execution.handle(Started(time=datetime.now(UTC), message=message("order")))
        execution.close()
        return next(command.message for command in commands if isinstance(command, Send))

    instance_id = uuid.uuid4()
    first, second = find_request(instance_id), find_request(instance_id)
    assert first.message_id != second.message_id
    assert first.context[BTS.EpmRRCorrelationToken] != second.context[BTS.EpmRRCorrelationToken]
