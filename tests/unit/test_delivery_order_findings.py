"""The checks of a run of chaos find messages of an ordered port that are out of order."""

from __future__ import annotations

import pytest

from tests.support.delivery_chaos.order import find_changed, find_late, find_overtaking, find_published_earlier
from tests.support.delivery_chaos.record import Arrival, Order


def arrive(number: int, *, accepted: bool = True, sequence: int | None = None, message_id: str = "") -> Arrival:
    return Arrival(
        number=number,
        at=0.0,
        message_id=message_id or f"message {number}",
        sequence=number if sequence is None else sequence,
        is_accepted=accepted,
    )


def publish(number: int, started: float, ended: float) -> Order:
    return Order(number=number, publisher=number, region="EU", priority=1, total=1, started=started, ended=ended)


def test_repeats_are_in_order_if_the_first_arrivals_are() -> None:
    arrivals = [arrive(1), arrive(2), arrive(1), arrive(2), arrive(3)]
    assert find_late(arrivals) == find_overtaking(arrivals) == find_changed(arrivals) == set()


def test_a_first_arrival_after_a_higher_sequence_number_is_late() -> None:
    assert find_late([arrive(1), arrive(3), arrive(2)]) == {2}


def test_a_message_overtakes_one_that_was_not_accepted() -> None:
    assert find_overtaking([arrive(1, accepted=False), arrive(2)]) == {2}
    assert find_overtaking([arrive(1, accepted=False), arrive(1), arrive(2)]) == set()
    assert find_overtaking([arrive(1), arrive(1, accepted=False), arrive(2)]) == set(), "the repeat was not needed"


@pytest.mark.parametrize(
    "repeat",
    [arrive(1, sequence=2), arrive(1, message_id="other"), arrive(2, sequence=1), arrive(2, message_id="message 1")],
)
def test_a_repeat_has_the_message_id_and_the_sequence_number_of_the_first_arrival(repeat: Arrival) -> None:
    assert find_changed([arrive(1), repeat]) == {repeat.number}


def test_publishes_that_did_not_overlap_arrive_in_their_order() -> None:
    orders = {1: publish(1, 0.0, 1.0), 2: publish(2, 2.0, 3.0), 3: publish(3, 0.5, 2.5)}
    assert find_published_earlier([arrive(2), arrive(1)], orders) == {1}
    assert find_published_earlier([arrive(2), arrive(3)], orders) == set()


def test_the_publishes_of_one_program_arrive_in_their_order() -> None:
    together = {number: Order(number=number, publisher=0, region="EU", priority=1, total=1) for number in (0, 3)}
    assert find_published_earlier([arrive(3), arrive(0)], together) == {0}
