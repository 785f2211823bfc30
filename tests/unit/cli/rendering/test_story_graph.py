"""The story of an orchestration instance as SVG."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from postroom.cli.rendering.story_graph import MAX_LINES, draw_story
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.instances import Instance, InstanceState
from postroom.messagebox.storage.copy_rows import QueueTask
from postroom.operations.orchestrations.story import Story, StoryLine, Wait

TIME = datetime(2026, 3, 5, 23, 59, 59, 500_000, tzinfo=UTC)
STORY = Story(
    story=(
        StoryLine(time=TIME, kind="received", what="activated by a message", message_id=uuid.UUID(int=7)),
        StoryLine(time=TIME, kind="sent", what="sent a message to <Acme & Co>", place="app.py:12"),
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


def find_nodes(svg: str) -> list[tuple[str, list[str]]]:
    """Return the classes and the texts of each node, in their order."""
    root = ElementTree.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{name}svg"
    return [
        (node.attrib["class"].removeprefix("node "), [text.text or "" for text in node.iter(f"{name}text")])
        for node in root.iter(f"{name}g")
        if node.attrib.get("class", "").startswith("node")
    ]


def test_each_line_and_each_wait_is_a_node() -> None:
    assert find_nodes(draw_story(INSTANCE, STORY)) == [
        ("received", ["activated by a message", "message 00000000-0000"]),
        ("sent", ["sent a message to <Acme & Co>", "app.py:12"]),
        ("timer", ["started a timer", "due 2026-03-06 00:00:59 UTC"]),
        ("step failed", ["step pay failed:   no route", ""]),
        ("message waits", ["Kind == 'offer'", "waits for messages that match"]),
        ("timer waits", ["its next timer", "waits for"]),
    ]


def test_times_are_written_where_they_change_and_dates_with_each_day() -> None:
    texts = [element.text for element in ElementTree.fromstring(draw_story(INSTANCE, STORY)).iter() if element.text]
    assert [text for text in texts if text.startswith(("23:", "00:", "2026"))] == [
        *("23:59:59.500", "2026-03-05 UTC"),
        *("00:00:00.500", "2026-03-06 UTC"),
    ]
    assert "procure, instance 00000000-0000-0000-0000-000000000001" in texts
    assert "waiting" in texts
    assert "procure version 2, instance " in draw_story(replace(INSTANCE, version=2), STORY)


def test_a_suspended_instance_ends_with_its_error() -> None:
    suspended = replace(INSTANCE, error_code="JOURNAL", error_description="It does not fit.\nMore.")
    assert find_nodes(draw_story(suspended, STORY))[-1] == (
        "failed suspended",
        ["suspended: It does not fit.", "JOURNAL"],
    )


def test_long_texts_are_shortened_and_complete_in_the_tooltip() -> None:
    line = StoryLine(time=TIME, kind="sent", what="x" * 500)
    svg = draw_story(INSTANCE, replace(STORY, story=(line,)))
    [shown, _] = find_nodes(svg)[0][1]
    assert shown.endswith("x…")
    assert len(shown) < 100
    assert f"<title>{'x' * 500}</title>" in svg


def test_a_long_story_is_drawn_from_its_last_lines() -> None:
    lines = tuple(StoryLine(time=TIME, kind="sent", what=str(number)) for number in range(MAX_LINES + 5))
    svg = draw_story(INSTANCE, replace(STORY, story=lines, waits_for=(), journals=2))
    nodes = find_nodes(svg)
    assert len(nodes) == MAX_LINES
    assert nodes[0][1][0] == "5"
    assert "5 earlier lines are not drawn." in svg
    assert "fresh journal 2 times" in svg


@pytest.mark.parametrize("scheme", ["", "prefers-color-scheme: dark"])
def test_there_are_colours_for_light_and_dark(scheme: str) -> None:
    style = draw_story(INSTANCE, STORY).partition("</style>")[0]
    assert ".sent .stroke" in style.partition("@media")[2 if scheme else 0]
