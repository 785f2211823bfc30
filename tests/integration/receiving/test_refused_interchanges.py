"""INS-14: a receive adapter decides about interchanges that the receive pipeline rejects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from postroom import BTS, Context, adapters, pipelines
from postroom.adapters.contract import Committed, Incoming, ReceiveAdapter, Refused
from postroom.agent.routing.table import RoutingTable
from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.messagebox.connection import connect
from postroom.receiving.polled_location import PolledLocation
from tests.support.box import PROMOTE, Box

BAD, GOOD, UNROUTABLE = b"no JSON", b'{"region": "EU"}', b'{"region": "MARS"}'


class RefusingAdapter(ReceiveAdapter):
    """Hands over these bodies once, and decides about the rejected ones if ``action`` is 0."""

    def __init__(self, action: int | None, *bodies: bytes) -> None:
        context = Context().write(BTS.ActionOnFailure, action)
        self._batch = [
            Incoming(key=str(number), body=Bytes(body), context=context) for number, body in enumerate(bodies)
        ]
        self.cleaned: list[str] = []
        self.refused: list[Refused] = []
        self.released: list[str] = []

    def poll(self, limit: int) -> Sequence[Incoming]:
        batch, self._batch = self._batch, []
        return batch

    def clean_up(self, committed: Sequence[Committed]) -> None:
        self.cleaned += [one.incoming.key for one in committed]

    def refuse(self, refused: Sequence[Refused]) -> None:
        self.refused += refused

    def release(self, batch: Sequence[Incoming]) -> None:
        self.released += [incoming.key for incoming in batch]


class _Definition(adapters.ReceiveDefinition):
    """A definition whose adapter the test replaces."""

    kind: str = "test"

    def address(self, home: Path) -> str:
        return "test://"

    def make_receiver(self, home: Path) -> ReceiveAdapter:
        return RefusingAdapter(None)


@pytest.fixture
def polled(box: Box, tmp_path: Path) -> Iterator[PolledLocation]:
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = box.add_location(pipelines.Json(promote=PROMOTE))
    location.__dict__["adapter"] = _Definition()  # the cached property
    polled = PolledLocation(
        location, connect=partial(connect, box.url, user=box.host().role_name), home=tmp_path, routing=RoutingTable()
    )
    yield polled
    polled.close()


def test_an_adapter_decides_about_a_rejected_interchange_that_it_asked_for(box: Box, polled: PolledLocation) -> None:
    polled.adapter = adapter = RefusingAdapter(0, GOOD, BAD)
    polled.step()
    assert (adapter.cleaned, adapter.released) == (["0"], [])
    [refused] = adapter.refused
    assert refused.incoming.key == "1"
    assert isinstance(refused.failure, PipelineFailure)
    assert box.suspended() == []
    assert (box.queued(), box.count("receipts")) == ({"Europe": 1}, 1)


def test_a_refused_interchange_can_be_received_again(box: Box, polled: PolledLocation) -> None:
    polled.adapter = RefusingAdapter(0, BAD)
    polled.step()
    polled.adapter = adapter = RefusingAdapter(0, GOOD)
    polled.step()
    assert (adapter.cleaned, box.queued()) == (["0"], {"Europe": 1})


@pytest.mark.parametrize(
    ("action", "body", "suspended"),
    [(None, BAD, [("PIPELINE", True)]), (1, BAD, [("PIPELINE", True)]), (0, UNROUTABLE, [("ROUTING", True)])],
)
def test_other_failures_are_suspended(
    box: Box, polled: PolledLocation, action: int | None, body: bytes, suspended: list[tuple[str, bool]]
) -> None:
    polled.adapter = adapter = RefusingAdapter(action, body)
    polled.step()
    assert (adapter.cleaned, adapter.refused) == (["0"], [])
    assert [found for found in box.suspended() if found != ("ROUTING", False)] == suspended
