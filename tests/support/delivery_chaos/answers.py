"""Compare the answers of callers with the requests that arrived and the responses that were published."""

from __future__ import annotations

import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tests.support.delivery_chaos.callers import RESPONSE_SECONDS
from tests.support.delivery_chaos.record import Arrival, Call, Fault, Record

#: The paths of the receiver that two-way ports send to.
TWO_WAY = ("price", "rates")
#: So long after the first response after a fault, the other host instances have recovered from the fault, too.
_RECOVERY_SECONDS = 30.0
#: Answers for which a program, the host of the callers, its connections or PostgreSQL must have failed.
_INTERRUPTED = ("closed", "refused", "503", "unavailable")


def find_wrong_answers(record: Record, published: Iterable[Mapping[str, object]]) -> list[str]:
    """Describe each call whose answers, requests and responses do not belong together. ``published`` are the responses
    that a port which subscribes to them has received."""
    requests: defaultdict[int, list[Arrival]] = defaultdict(list)
    for path in TWO_WAY:
        for arrival in record.arrivals[path]:
            requests[arrival.number].append(arrival)
    responses: defaultdict[object, list[Mapping[str, object]]] = defaultdict(list)
    for response in published:
        responses[response["number"]].append(response)
    responded = sorted(
        answer.ended
        for call in record.calls
        for answer in call.answers
        if answer.kind == "200" and not call.is_from_program
    )
    interruptions = [
        (fault.started, find_recovery(fault, responded)) for fault in record.faults if fault.host in ("Front", None)
    ]
    problems = []
    for call in record.calls:
        found = [
            *_compare_with_requests(call, requests.pop(call.number, []), responses[call.number]),
            *_compare_responses(call, responses.pop(call.number, [])),
            *_find_dishonest(call, interruptions),
        ]
        problems += [f"call {call.number} {problem}: {_summarise(call)}" for problem in found]
    if unknown := sorted({*requests, *responses}, key=str):
        problems.append(f"requests that nobody has sent: {unknown[:5]}")
    return problems


def _compare_with_requests(call: Call, requests: Sequence[Arrival], responses: Sequence[object]) -> Iterable[str]:
    """A request is published once, whatever its caller got, and a request that was accepted has a response."""
    if len(ids := {request.message_id for request in requests}) > 1:
        yield f"was published {len(ids)} times"
    if requests and all(answer.kind == "refused" for answer in call.answers):
        yield "was published, but its caller could not connect"
    if any(request.is_accepted for request in requests) and not responses:
        yield "was accepted by the receiver, but has no response"


def _compare_responses(call: Call, responses: Sequence[Mapping[str, object]]) -> Iterable[str]:
    """There is at most one response, and each attempt that got one got this one."""
    if len(responses) > 1:
        yield f"has {len(responses)} responses, {list(responses)}"
    received = [answer.document for answer in call.answers if answer.kind == "200"]
    if any(document not in responses for document in received):
        yield f"got {received}, and its response is {list(responses)}"


def find_recovery(fault: Fault, responded: Sequence[float]) -> float:
    """Return when callers have to be served after a fault. Hosts may start slowly: only the first response tells."""
    first = bisect(responded, fault.ended)
    return responded[first] + _RECOVERY_SECONDS if first < len(responded) else math.inf


def _find_dishonest(call: Call, interruptions: Sequence[tuple[float, float]]) -> Iterable[str]:
    """An error says what happened, and a call with a key gets a response in the end."""
    for number, answer in enumerate(call.answers):
        waited = answer.ended - (answer if call.key is None else call.answers[0]).started
        match answer.kind:
            case "200" | "hung up":
                is_honest = True
            case "504" | "409":
                is_honest = waited >= RESPONSE_SECONDS and (answer.kind == "504" or call.key is not None)
            case "no response":
                is_honest = any(before.kind == "504" for before in call.answers[:number])
            case kind if kind in _INTERRUPTED:
                is_honest = any(
                    started < answer.ended and answer.started < recovery for started, recovery in interruptions
                )
            case _:
                is_honest = False
        if not is_honest:
            yield f"got {answer.kind} ({answer.document}) after {waited:.1f} s without a reason"
            break
    if call.key is not None and call.answers[-1].kind not in ("200", "409", "no response"):
        yield "was repeated and has no response"


def _summarise(call: Call) -> str:
    key = "without a key" if call.key is None else "with a key"
    return f"{key}, answers {', '.join(kind for kind, _ in groupby(answer.kind for answer in call.answers))}"
