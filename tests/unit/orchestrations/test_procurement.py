"""The example procurement, with fake ports and a clock that skips the waiting."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from postroom import Message, testing
from postroom.examples.procurement.app import Kind, OrderId, procure


def message(kind: str, **values: object) -> Message:
    body = json.dumps({"kind": kind, "order": "7", **values}).encode()
    return Message.of(body, promoted={Kind: kind, OrderId: "7"})


def offer(supplier: str, price: int) -> Message:
    return message("offer", supplier=supplier, price=price)


def list_sent(run: testing.Run) -> list[tuple[str | None, str]]:
    return [(sent.port, json.loads(sent.message.data)["kind"]) for sent in run.sent]


@pytest.fixture(params=[False, True], ids=["live", "replayed"])
def run(request: pytest.FixtureRequest) -> testing.Run:
    started = testing.start(procure, message("order", wait_seconds=60), crashes=request.param)
    assert list_sent(started) == [("acme", "request"), ("bolt", "request")]
    return started


def test_the_cheapest_supplier_is_chosen(run: testing.Run) -> None:
    run.publish(offer("acme", 90))
    run.publish(offer("bolt", 80))
    run.publish(message("confirmation", accepted=True))
    assert list_sent(run)[2:] == [("budget", "reserve"), ("bolt", "purchase"), ("buyer", "bought")]
    assert (run.has_ended, run.unreceived_messages) == (True, [])


def test_the_only_offer_in_time_is_chosen_and_a_late_one_is_left(run: testing.Run) -> None:
    """ORC-27: the late offer is not received."""
    run.publish(offer("acme", 90))
    run.advance(timedelta(minutes=1))
    run.publish(late := offer("bolt", 80))
    run.publish(message("confirmation", accepted=True))
    assert list_sent(run)[2:] == [("budget", "reserve"), ("acme", "purchase"), ("buyer", "bought")]
    assert (run.has_ended, run.unreceived_messages) == (True, [late])


def test_a_refusal_releases_the_budget(run: testing.Run) -> None:
    run.publish(offer("acme", 90))
    run.publish(offer("bolt", 90))
    run.publish(message("confirmation", accepted=False))
    assert list_sent(run)[3:] == [("acme", "purchase"), ("budget", "release"), ("buyer", "failed")]
    assert run.has_ended


def test_without_offers_the_buyer_gets_a_failure(run: testing.Run) -> None:
    run.advance(timedelta(minutes=1))
    assert list_sent(run)[2:] == [("buyer", "failed")]
    assert run.has_ended
