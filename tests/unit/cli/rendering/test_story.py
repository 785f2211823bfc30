"""The story of an orchestration instance as tables and as a sequence diagram."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from postroom.cli.rendering.story import MAX_LINES, draw_story, show_story
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.instances import Instance, InstanceState
from postroom.messagebox.queues import QueueTask
from postroom.operations.instances.details import OrchestrationInstanceDetails
from postroom.operations.orchestrations.story import Story, StoryLine, Wait
from postroom.operations.records import extend, to_row

TIME = datetime(2026, 3, 5, 23, 59, 59, 500_000, tzinfo=UTC)
STORY = Story(
    story=(
        StoryLine(time=TIME, kind="received", what="activated by a message", message_id=uuid.UUID(int=7)),
        StoryLine(time=TIME, kind="sent", what="sent a message to <Acme; Co>", place="app.py:12"),
        StoryLine(time=TIME, kind="timer", what="started a timer", due=TIME + timedelta(minutes=1)),
        StoryLine(
            time=TIME + timedelta(seconds=1), kind="step", what="step pay failed: \x00 no\nroute", has_failed=True
        ),
    ),
    waits_for=(
        Wait(kind="message", what="messages that match Kind == 'offer'", filter="Kind == 'offer'"),
        Wait(kind="timer", what="its next timer"),
    ),
    journals=0,
    unreceived=0,
)
INSTANCE = Instance(
    instance_id=uuid.UUID(int=1),
    state=InstanceState.DEHYDRATED,
    host="Main",
    service_class=ServiceClass.ORCHESTRATIONS,
    service_id=uuid.UUID(int=2),
    service="procure",
    port="procure",
    subscription_id=None,
    message_id=uuid.UUID(int=7),
    task=QueueTask.JOIN_INSTANCE,
    attempt=1,
    priority=5,
    seq=1,
    enqueued_at=TIME,
    retry_at=None,
    timer_at=None,
    suspended_at=None,
    cause=None,
    error_code=None,
    error_description=None,
    adapter=None,
    uri=None,
    related_instance_id=None,
)


def draw(instance: Instance, story: Story) -> list[str]:
    return [line.strip() for line in draw_story(instance, story)]


def test_each_line_and_each_wait_is_an_arrow_and_each_time_a_note() -> None:
    assert draw(INSTANCE, STORY) == [
        "sequenceDiagram",
        "title procure, instance 00000000-0000-0000-0000-000000000001: waiting",
        "participant M as MessageBox",
        "participant I as procure",
        "Note over I: 2026-03-05 23:59:59.500000 UTC",
        "M->>I: activated by a message (message 00000000-0000)",
        "I->>M: sent a message to #60;Acme#59; Co#62; (app.py:12)",
        "I->>I: started a timer (due 2026-03-06 00:00:59 UTC)",
        "Note over I: 2026-03-06 00:00:00.500000 UTC",
        "I-xI: step pay failed:   no route",
        "M-->>I: waits for messages that match Kind == 'offer'",
        "I-->>I: waits for its next timer",
    ]


def test_the_title_has_the_version() -> None:
    assert "procure version 2, instance " in draw(replace(INSTANCE, version=2), STORY)[1]


def test_a_suspended_instance_ends_with_its_error() -> None:
    suspended = replace(INSTANCE, error_code="JOURNAL", error_description="It does not fit.\nMore.")
    assert draw(suspended, STORY)[-1] == "Note over I: suspended: It does not fit. (JOURNAL)"


def test_long_texts_are_shortened() -> None:
    line = StoryLine(time=TIME, kind="sent", what="x" * 500)
    drawn = draw(INSTANCE, replace(STORY, story=(line,), waits_for=()))[-1]
    assert drawn.endswith("x…")
    assert len(drawn) < 150


def test_a_long_story_is_drawn_from_its_last_lines() -> None:
    lines = tuple(StoryLine(time=TIME, kind="sent", what=str(number)) for number in range(MAX_LINES + 5))
    drawn = draw(INSTANCE, replace(STORY, story=lines, waits_for=(), journals=2, unreceived=1))
    arrows = [line for line in drawn if "->>" in line]
    assert len(arrows) == MAX_LINES
    assert arrows[0] == "I->>M: 5"
    assert "Note over I: 5 earlier lines not drawn" in drawn
    assert "Note over I: started again with a fresh journal 2 times" in drawn
    assert drawn[-1] == "Note over I: one message not received yet"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (InstanceState.READY_TO_RUN, "A host that continues it."),
        (InstanceState.SUSPENDED, "An operator who resumes or terminates it."),
        (InstanceState.ACTIVE, "Nothing."),
    ],
)
def test_an_instance_without_waits_says_who_continues_it(
    state: InstanceState, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = to_row(replace(STORY, waits_for=(), unreceived=1))
    show_story(extend(replace(INSTANCE, state=state), OrchestrationInstanceDetails, what_to_do=None, **story))
    ending = capsys.readouterr().out.partition("Waits for:\n")[2]
    assert ending.splitlines() == [expected, "Routed to it and not received yet: one message."]
