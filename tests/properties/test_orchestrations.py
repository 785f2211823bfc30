"""Random orchestrations give the same result with and without crashes, and on the testing kit and in a host."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from postroom import Message, testing
from postroom.errors import PostroomError
from postroom.hosts import HostInstance
from postroom.hosts.orchestrations import runner
from postroom.messagebox.coordination.notifications import wake_up_channel
from tests.integration.hosts.conftest import SETTINGS
from tests.support.box import Box
from tests.support.changes import terminate
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.orchestrations import apply_orchestrations
from tests.support.random_orchestrations import (
    INPUTS,
    PROGRAM,
    PROGRAMS,
    Op,
    find_misplaced_results,
    make_input,
    make_start,
)
from tests.support.replayed_journals import replay_elsewhere
from tests.support.waiting import wait_until

SUBSCRIBED = {"A", "B"}
#: A twentieth of the examples of other tests: each one waits for a host.
FEW = settings().max_examples // 20

#: What is sent stays in the suspended queue, in order, because the ports are stopped.
APPLICATION = """
from tests.support.random_orchestrations import SETS, run_program

app.send_port("A", adapters.Null(), host="Default", state="stopped")
app.send_port("B", adapters.Null(), host="Default", state="stopped")
app.send_port("Nobody", adapters.Null(), host="Default", state="bound")
app.orchestration(activate=Kind == "start", correlations=list(SETS.values()), host="Default")(run_program)
"""


def start(program: tuple[Op, ...], inputs: list[str | int], *, crashes: bool = False) -> testing.Run:
    run = testing.Run(
        PROGRAM,
        with_id(make_start(program, "k"), 0),
        subscribed=SUBSCRIBED,
        crashes=crashes,
        instance_id=uuid.UUID(int=7),
    )
    for number, one in enumerate(inputs, 1):
        if isinstance(one, int):
            run.advance(timedelta(seconds=one))
        else:
            run.publish(with_id(make_input(one, number, "k"), number))
    return run


def observe(program: tuple[Op, ...], inputs: list[str | int], *, crashes: bool) -> tuple[object, ...]:
    run = start(program, inputs, crashes=crashes)
    sent = [(sent.port, sent.message.data, sent.message.message_id) for sent in run.sent]
    return sent, run.journal, run.has_ended, run.error, run.waits, [message.data for message in run.unreceived_messages]


def with_id(message: Message, number: int) -> Message:
    return replace(message, message_id=uuid.UUID(int=number + 1))


@settings(max_examples=3 * settings().max_examples // 2)
@given(PROGRAMS, INPUTS)
def test_a_crash_between_two_persistence_points_changes_nothing(
    program: tuple[Op, ...], inputs: list[str | int]
) -> None:
    assert observe(program, inputs, crashes=True) == observe(program, inputs, crashes=False)


@settings(max_examples=max(2, FEW // 2), phases=[Phase.generate])
@given(st.lists(st.tuples(PROGRAMS, INPUTS), min_size=30, max_size=30))
def test_a_process_with_another_hash_seed_replays_the_same(
    examples: list[tuple[tuple[Op, ...], list[str | int]]],
) -> None:
    runs = [start(program, inputs) for program, inputs in examples]
    for run, replayed in zip(runs, replay_elsewhere([run.save_journal() for run in runs]), strict=True):
        assert replayed == [[str(sent.message.message_id), sent.message.data.decode()] for sent in run.sent]
        assert find_misplaced_results(sent.message.data.decode() for sent in run.sent) == []


@dataclass
class Clock:
    """The time of the host. The test moves it."""

    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.time


@dataclass
class Hosted:
    """A host that runs the programs over PostgreSQL."""

    box: Box
    clock: Clock

    def publish(self, message: Message) -> None:
        self.box.agent(warm=False).publish([message])

    def set_time(self, time: datetime) -> None:
        self.clock.time = time
        self.box.connection.execute("SELECT pg_notify(%s, '')", (wake_up_channel("Default"),))

    def observe(self, key: str) -> tuple[object, ...]:
        """Return what the instance has sent, its journal, and the number of messages that it has not received."""
        bodies = [(row.port, (row.body or b"").decode()) for row in self.box.suspended_rows()]
        sent = [(port, body) for port, body in bodies if port is not None and body.startswith(f"{key} ")]
        waiting = self.box.count("unreceived orchestration messages")
        queued = self.box.count("queued for orchestrations")
        claimed = self.box.count("claimed orchestrations")
        return sent, list_turns(self.box.journal()), waiting + queued, claimed

    def terminate(self) -> None:
        """Terminate the instance of an example, if it has not ended. The host may be taking its messages."""
        while rest := self.box.running_orchestrations():
            with suppress(PostroomError):
                terminate(self.box.connection, rest[0])


def list_turns(journal: list[dict[str, Any]]) -> list[object]:
    """Return the turns of a journal without times, ids and seeds."""
    return [
        (
            {**turn["event"], "message": None, "seed": None},
            [(command["number"], command["kind"], command["name"]) for command in turn["commands"]],
        )
        for turn in journal
    ]


def expect(run: testing.Run) -> tuple[object, ...]:
    """Return what the host has to show."""
    sent = [(sent.port, sent.message.data.decode()) for sent in run.sent]
    if run.has_ended:
        return sent, [], 0, 0
    return sent, list_turns(run.journal), len(run.unreceived_messages), 0


@pytest.fixture(scope="module", params=["live", "replayed"])
def hosted(databases: Databases, request: pytest.FixtureRequest) -> Iterator[Hosted]:
    """Yield a host that keeps the coroutines in memory, or one that replays them for each event."""
    with pytest.MonkeyPatch.context() as patch, databases.open_box() as box, open_folder() as folder:
        if request.param == "replayed":
            patch.setattr(runner, "MAX_LIVE", 0)
        apply_orchestrations(box, folder, APPLICATION)
        clock = Clock()
        with HostInstance(box.url, "Default", folder, settings=SETTINGS, as_role=True, clock=clock):
            yield Hosted(box, clock)


@settings(max_examples=FEW, phases=[Phase.generate])  # finding a smaller example would wait for each one that fails
@given(PROGRAMS, INPUTS)
def test_a_program_does_the_same_on_the_testing_kit_and_in_a_host(
    hosted: Hosted, program: tuple[Op, ...], inputs: list[str | int]
) -> None:
    key = uuid.uuid4().hex
    start = make_start(tuple(without_random(program)), key)

    def compare(what: str) -> None:
        wait_until(lambda: hosted.observe(key) == expect(run), timeout=60, what=f"the same after {what}")

    run = testing.Run(PROGRAM, start, subscribed=SUBSCRIBED, time=hosted.clock.time)
    hosted.publish(start)
    compare("the start")
    # One second after the other: a timer of the host fires at the time that the clock shows.
    steps = [step for one in inputs for step in ([1] * one if isinstance(one, int) else [one])]
    for number, one in enumerate(steps, 1):
        if run.has_ended:
            break
        if isinstance(one, int):
            run.advance(timedelta(seconds=one))
            hosted.set_time(run.time)
        else:
            message = make_input(one, number, key)
            run.publish(message)
            hosted.publish(message)
        compare(f"step {number}, {one}")
    hosted.terminate()


def without_random(block: tuple[Op, ...]) -> Iterator[Op]:
    """Yield the operations whose results do not depend on the id of the instance."""
    for op in block:
        if op.name != "random":
            yield replace(op, inside=tuple(tuple(without_random(inner)) for inner in op.inside))
