"""The checks of a run of chaos find callers that got a wrong answer."""

from __future__ import annotations

import math

import pytest

from tests.support.delivery_chaos.answers import find_recovery, find_wrong_answers
from tests.support.delivery_chaos.record import Answer, Arrival, Call, Fault, Record

RESPONSE = {"number": 1, "answer": 7}
OTHER = {"number": 1, "answer": 8}


def answer(kind: str, document: object = None, seconds: float = 1.0) -> Answer:
    return Answer(kind=kind, document=document, started=100.0, ended=100.0 + seconds)


def request(message_id: str = "a", *, accepted: bool = True) -> Arrival:
    return Arrival(number=1, at=100.0, message_id=message_id, is_accepted=accepted)


def find(
    *answers: Answer,
    requests: tuple[Arrival, ...] = (request(),),
    responses: tuple[dict[str, int], ...] = (RESPONSE,),
    key: str | None = None,
    faults: tuple[Fault, ...] = (),
) -> list[str]:
    record = Record(calls=[Call(number=1, key=key, answers=list(answers))], faults=list(faults))
    record.arrivals["price"] = list(requests)
    return find_wrong_answers(record, responses)


def test_a_call_with_its_response_is_right() -> None:
    assert find(answer("200", RESPONSE)) == []
    assert find(answer("200", RESPONSE), answer("200", RESPONSE), requests=(request(), request()), key="k") == []


@pytest.mark.parametrize("kind", ["closed", "refused", "503", "unavailable"])
def test_an_interrupted_call_needs_a_fault(kind: str) -> None:
    fault = Fault(host="Front", started=99.0, ended=100.0)
    other = Fault(host="Main", started=99.0, ended=100.0)
    assert find(answer(kind), requests=(), responses=(), faults=(fault,)) == []
    [problem] = find(answer(kind), requests=(), responses=(), faults=(other,))
    assert f"got {kind} (None) after 1.0 s without a reason" in problem


def test_callers_are_served_some_time_after_the_first_response_after_a_fault() -> None:
    fault = Fault(host=None, started=10.0, ended=20.0)
    assert find_recovery(fault, [15.0, 60.0, 70.0]) == 90.0
    assert find_recovery(fault, [15.0]) == math.inf


def test_a_timeout_needs_its_time() -> None:
    assert find(answer("504", seconds=31.0)) == []
    assert "without a reason" in find(answer("504", seconds=29.0))[0]
    assert "without a reason" in find(answer("409", seconds=31.0))[0], "the call has no key"
    assert find(answer("hung up"), answer("409", seconds=31.0), key="k") == []


@pytest.mark.parametrize(
    ("problem", "found"),
    [
        ("published 2 times", find(answer("200", RESPONSE), requests=(request("a"), request("b")))),
        ("has 2 responses", find(answer("200", RESPONSE), responses=(RESPONSE, OTHER))),
        ("got [{'number': 1, 'answer': 8}]", find(answer("200", OTHER))),
        ("its response is []", find(answer("200", RESPONSE), responses=(), requests=())),
        ("has no response", find(answer("504", seconds=31.0), responses=())),
        ("has no response", find(answer("hung up"), answer("504", seconds=31.0), key="k", responses=(), requests=())),
        ("got 500 (broken)", find(answer("500", "broken"))),
        ("nobody has sent", find_wrong_answers(Record(), [RESPONSE])),
    ],
    ids=["twice", "two responses", "another response", "invented", "lost", "never", "error", "unknown"],
)
def test_a_wrong_answer_is_found(problem: str, found: list[str]) -> None:
    assert len(found) == 1
    assert problem in found[0]
