"""The checks of a run of chaos find repeats that no fault explains."""

from __future__ import annotations

import pytest

from tests.support.delivery_chaos.findings import find_unexplained
from tests.support.delivery_chaos.record import Arrival, Fault

ACCEPTED = Arrival(number=1, at=100.0, sender=7, is_accepted=True)
REPEATED = Arrival(number=1, at=200.0, sender=8, is_accepted=True)


@pytest.mark.parametrize(
    ("fault", "is_explained"),
    [
        (Fault(host="Main", pid=7, started=101.0, ended=101.0), True),
        (Fault(host="Main", pid=8, started=101.0, ended=101.0), False),
        (Fault(host=None, started=101.0, ended=102.0), True),
        (Fault(host="Main", pid=7, started=150.0, ended=151.0), False),
        (Fault(host="Main", pid=7, started=60.0, ended=70.0), False),
        (Fault(host="Main", pid=7, started=60.0, ended=95.0), True),
        (Fault(host="Main", pid=8, started=90.0, ended=199.0), True),
    ],
    ids=[
        "sender",
        "other process",
        "all processes",
        "after the completion",
        "long before",
        "shortly before",
        "frozen while it sent the repeat",
    ],
)
def test_a_repeat_is_explained_by_a_fault_of_its_sender(fault: Fault, is_explained: bool) -> None:
    assert find_unexplained([ACCEPTED, REPEATED], [fault]) == (set() if is_explained else {1})


def test_a_repeat_of_a_message_that_was_not_accepted_needs_no_fault() -> None:
    assert find_unexplained([Arrival(number=1, at=100.0, sender=7), REPEATED], []) == set()


def test_a_later_repeat_is_explained_by_a_fault_of_the_process_that_sent_it_again() -> None:
    faults = [Fault(host="Main", pid=pid, started=at, ended=at) for pid, at in ((7, 101.0), (8, 201.0))]
    third = Arrival(number=1, at=300.0, sender=9, is_accepted=True)
    assert find_unexplained([ACCEPTED, REPEATED, third], faults) == set()
