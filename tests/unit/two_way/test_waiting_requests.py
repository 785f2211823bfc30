"""Requests that wait in a process: each is taken once, and only by a response with its token."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from unittest.mock import Mock

import pytest

from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.stored_responses import StoredResponse
from postroom.two_way.waiting_requests import WaitingRequest, WaitingRequests

T = TypeVar("T")
Request = WaitingRequest[str]


class Requests(WaitingRequests[Request, str]):
    """Requests whose answers are texts."""

    def __init__(self, stored: list[StoredResponse] | None = None) -> None:
        self.subscriptions = Mock()
        self.wake = Mock()
        self.stored = Mock()
        self.stored.find.return_value = stored or []
        super().__init__(stored=self.stored, subscriptions=self.subscriptions, wake=self.wake)

    @property
    def removed(self) -> list[uuid.UUID]:
        return [call.args[1] for call in self.subscriptions.complete.call_args_list]

    def _call(self, work: Callable[[Connection], T]) -> T:
        return work(Mock())

    def _build_timeout(self, request: Request) -> TimeoutError:
        return TimeoutError()

    def _build_lost(self) -> LookupError:
        return LookupError()

    def _read_stored(self, connection: Connection, response: StoredResponse) -> str:
        return "stored"


def build_request(*, seconds: float = 600.0, digest: bytes | None = None, unit: uuid.UUID | None = None) -> Request:
    return WaitingRequest(unit=unit or uuid.uuid4(), deadline=time.monotonic() + seconds, digest=digest)


def build_stored(unit: uuid.UUID, *, is_stored: bool, is_awaited: bool) -> StoredResponse:
    return StoredResponse(
        unit=unit,
        is_stored=is_stored,
        content_type="text/plain",
        is_awaited=is_awaited,
        instance_id=None,
        is_orphaned=False,
        token=None,
    )


def test_only_a_response_with_the_token_takes_a_request_and_only_once() -> None:
    requests = Requests()
    request = requests.add(build_request())
    assert requests.take_answered(request.instance_id, None) is None
    assert requests.take_answered(request.instance_id, build_request().token) is None
    assert requests.take_answered(request.instance_id, request.token) is request
    assert requests.take_answered(request.instance_id, request.token) is None
    requests.end([request], "late")
    assert not request.future.done()


def test_a_request_whose_time_is_over_ends_and_its_subscription_is_removed() -> None:
    requests = Requests()
    expired, waiting = requests.add(build_request(seconds=0)), requests.add(build_request())
    assert requests.check() == pytest.approx(600, abs=60)
    assert isinstance(expired.future.exception(0), TimeoutError)
    assert requests.waiting == [waiting]
    assert requests.removed == [expired.instance_id]


def test_check_returns_none_if_no_request_waits() -> None:
    requests = Requests()
    assert requests.check() is None
    request = requests.add(build_request())
    requests.wake.assert_called_once()
    assert requests.take(request.instance_id) is request
    assert requests.check() is None


def test_a_request_that_is_cancelled_while_its_response_is_read_is_not_put_back() -> None:
    requests = Requests()
    request = requests.add(build_request())
    requests.take(request.instance_id)
    request.future.cancel()
    requests.put_back(request)
    assert len(requests) == 0
    requests.check()
    assert requests.removed == [request.instance_id]


def test_the_subscription_of_a_request_that_ended_before_its_commit_is_removed() -> None:
    requests = Requests()
    request = requests.add(build_request())
    requests.stop_waiting(request)
    requests.check()
    requests.confirm(request, follows=True)
    requests.check()
    assert requests.removed == [request.instance_id, request.instance_id]
    requests.stored.find.assert_not_called()


def test_all_requests_that_follow_a_key_get_the_stored_response() -> None:
    unit = uuid.uuid4()
    requests = Requests([build_stored(unit, is_stored=True, is_awaited=False)])
    following: list[Future[str]] = []
    for _ in range(2):
        request = requests.add(build_request(digest=b"", unit=unit))
        requests.confirm(request, follows=True)
        following.append(request.future)
    requests.check()
    assert [future.result(0) for future in following] == ["stored", "stored"]


def test_a_request_keeps_following_while_the_response_is_awaited() -> None:
    unit = uuid.uuid4()
    requests = Requests([build_stored(unit, is_stored=False, is_awaited=True)])
    request = requests.add(build_request(digest=b"", unit=unit))
    requests.confirm(request, follows=True)
    requests.check()
    assert requests.is_waiting(request)
    requests.stored.find.return_value = [build_stored(unit, is_stored=False, is_awaited=False)]
    requests.check()
    assert isinstance(request.future.exception(0), LookupError)
