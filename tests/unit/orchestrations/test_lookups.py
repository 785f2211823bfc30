"""Lookups in code that is tested, and the cache of a process."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom import Lookup, Message, lookup, orchestrations, testing
from postroom.errors import MessageBoxUnavailable, NotFound, StateError
from postroom.lookups import source
from postroom.lookups.source import use_source
from postroom.orchestrations import JournalMismatch
from tests.support.offers import bodies, declare, message

Customers = lookup("Customers")
ACME = {"Customers": {"C-17": b"Acme"}}


def test_a_lookup_is_known_by_its_name() -> None:
    assert lookup("Customers") == Lookup("Customers")
    assert repr(Customers) == "Lookup(name='Customers')"


def test_a_test_gives_the_entries() -> None:
    entry = Message.of(b"Bolt")
    with testing.lookups({"Customers": {"C-17": b"Acme", "C-18": entry}}):
        found = Customers.get("C-17")
        assert found is not None
        assert found.data == b"Acme"
        assert Customers.get("C-18") is entry
        assert Customers.get("C-19") is None
        with pytest.raises(NotFound, match="no lookup 'Suppliers'"):
            lookup("Suppliers").get("S-1")


def test_a_process_without_a_messagebox_has_no_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers of other tests may have left theirs in this process.
    monkeypatch.setattr(source, "_sources", list)
    with pytest.raises(StateError, match=r"client\.lookup"):
        Customers.get("C-17")


async def enrich(order: Message) -> None:
    first = Customers.get("C-17")
    await orchestrations.delay(5)
    second, third = Customers.get("C-17"), Customers.get("C-18")
    found = [b"none" if entry is None else entry.data for entry in (first, second, third)]
    await orchestrations.send(Message.of(b" ".join(found)))


def test_a_replay_of_an_orchestration_gets_the_same_entries(crashes: bool) -> None:
    """The entry changes while the instance waits. What it has read before stays."""
    with testing.lookups(ACME):
        run = testing.start(declare(enrich), message("order"), crashes=crashes)
    with testing.lookups({"Customers": {"C-17": b"Bolt"}}):
        run.advance(timedelta(seconds=5))
    assert bodies(run) == [b"Acme Bolt none"]


def test_a_saved_journal_is_replayed_without_lookups() -> None:
    with testing.lookups(ACME):
        run = testing.start(declare(enrich), message("order"))
    testing.replay(declare(enrich), run.save_journal())


def test_a_replay_with_another_lookup_or_another_key_does_not_fit() -> None:
    async def enrich_with_other_key(order: Message) -> None:
        Customers.get("C-18")
        await orchestrations.delay(5)

    async def enrich_with_other_lookup(order: Message) -> None:
        lookup("Suppliers").get("C-17")
        await orchestrations.delay(5)

    async def look_up_more(order: Message) -> None:
        Customers.get("C-17")
        Customers.get("C-18")
        await orchestrations.delay(5)

    with testing.lookups(ACME):
        journal = testing.start(declare(enrich), message("order")).save_journal()
    for changed, why in (
        (enrich_with_other_key, "with other arguments"),
        (enrich_with_other_lookup, "lookup Suppliers"),
        (look_up_more, "lookup Customers"),
    ):
        with pytest.raises(JournalMismatch, match=why):
            testing.replay(declare(changed), journal)


def test_an_orchestration_cannot_hide_that_a_lookup_cannot_be_read() -> None:
    """Otherwise a replay would have to fail in the same way."""

    class Unavailable:
        def get(self, name: str, key: object) -> Message | None:
            raise MessageBoxUnavailable("The MessageBox cannot be reached.")

    async def hide(order: Message) -> None:
        try:
            Customers.get("C-17")
        except Exception:
            await orchestrations.send(Message.of(b"hidden"))

    with use_source(Unavailable()), pytest.raises(MessageBoxUnavailable):
        testing.start(declare(hide), message("order"))


def test_an_unroutable_send_does_not_change_what_was_looked_up() -> None:
    """The instance goes back to its journal and runs the turn again, with the same answers."""
    answers = iter([b"Acme", b"Bolt"])

    class Changing:
        def get(self, name: str, key: object) -> Message | None:
            return Message.of(next(answers))

    async def send(order: Message) -> None:
        entry = Customers.get("C-17")
        assert entry is not None
        try:
            await orchestrations.send(Message.of(entry.data), to="Nobody")
        except Exception:
            await orchestrations.send(Message.of(entry.data), to="Out")

    with use_source(Changing()):
        run = testing.start(declare(send), message("order"), subscribed=["Out"])
    assert bodies(run) == [b"Acme"]
