"""ORC-56: hosts run the maps, schemas and pipelines of orchestrations as they were applied, and store their results."""

from __future__ import annotations

from pathlib import Path

from postroom.messagebox.orchestrations import read_stored_journal
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.orchestrations.story import read_story
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.orchestrations.test_bad_orchestrations import wait_for_suspended
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import apply_orchestrations, is_empty, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

STYLESHEET = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/order">
  <xsl:if test="not(total)"><xsl:message terminate="yes">an order has a total</xsl:message></xsl:if>
  <xsl:value-of select="concat('total ', total)"/>
</xsl:template>
</xsl:stylesheet>"""

MAP_AND_WAIT = """
from postroom import maps, pipelines

to_text = maps.Xslt("order.xslt", source="order", target="text")

@app.orchestration(activate=Kind == "order", correlations=[Replies], maps=[to_text], host="Default")
async def map_and_wait(order: Message) -> None:
    replies = Replies.of(order)
    first = await orchestrations.transform(order, to_text)
    await orchestrations.send(Message.of(first.data), to="Out")
    reply = await replies.receive()
    second = await orchestrations.transform(reply, to_text)
    await orchestrations.send(Message.of(b"then " + first.data + b", " + second.data), to="Out")
"""

ROUTE = """
from postroom import pipelines
from postroom.pipelines import components

lines = pipelines.JsonLines(promote={Kind: "kind"})
packed = pipelines.Send(encode=[components.Base64Encoder()])
app.send_port("Typed", adapters.Null(), host="Default", filter=Kind == "typed")

@app.orchestration(activate=Kind == "order", pipelines=[lines, packed], host="Default")
async def route(order: Message) -> None:
    for document in await orchestrations.execute_receive_pipeline(order, lines):
        await orchestrations.send(document)
    built = await orchestrations.build_message(b'{"kind": "typed", "built": 1}', lines)
    await orchestrations.send(built)
    assembled = await orchestrations.execute_send_pipeline(order, packed)
    await orchestrations.send(Message.of(assembled.data), to="Out")
"""


def test_a_map_is_shipped_with_the_application_and_its_result_is_replayed(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """The host maps with what was applied, whatever the file contains now. Another host process continues with the
    stored result."""
    (tmp_path / "order.xslt").write_text(STYLESHEET)
    apply_orchestrations(box, tmp_path, MAP_AND_WAIT)
    (tmp_path / "order.xslt").write_text(STYLESHEET.replace("total ", "edited "))
    first = start_host(recorder)
    publish(box, "order", "<order><total>5</total></order>")
    wait_until(lambda: sent(recorder) == [b"total 5"], what="the first result")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="it waits")
    first.stop()
    apply_orchestrations(box, tmp_path, MAP_AND_WAIT)
    start_host(recorder)
    publish(box, "reply", "<order><total>6</total></order>")
    wait_until(lambda: is_empty(box), what="the end")
    assert sent(recorder) == [b"then total 5, edited 6", b"total 5"]


def test_a_host_that_runs_takes_a_changed_stylesheet_when_it_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    (tmp_path / "order.xslt").write_text(STYLESHEET)
    apply_orchestrations(box, tmp_path, MAP_AND_WAIT)
    start_host(recorder)
    publish(box, "order", "<order><total>5</total></order>")
    wait_until(lambda: sent(recorder) == [b"total 5"], what="the first result")
    (tmp_path / "order.xslt").write_text(STYLESHEET.replace("total ", "applied "))
    [changed] = [step for step in apply_orchestrations(box, tmp_path, MAP_AND_WAIT).changes if step.differences]
    assert [difference.field for difference in changed.differences] == ["maps file order.xslt"]
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "<order><total>6</total></order>")
    wait_until(lambda: is_empty(box), what="the end")
    assert sent(recorder) == [b"then total 5, applied 6", b"total 5"]


def test_a_failed_map_suspends_the_instance_with_its_reason_and_a_resume_runs_it_again(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    (tmp_path / "order.xslt").write_text(STYLESHEET)
    apply_orchestrations(box, tmp_path, MAP_AND_WAIT)
    start_host(recorder)
    publish(box, "order", "<order/>")
    _, description = wait_for_suspended(box)
    assert "postroom.errors.MapFailure: order.xslt: The map failed." in description
    assert "an order has a total." in description
    assert "MapFailure" in description
    (tmp_path / "order.xslt").write_text(STYLESHEET.replace("not(total)", "false()"))
    apply_orchestrations(box, tmp_path, MAP_AND_WAIT)
    wait_until_taken(box.connection, ["Default"])
    [instance] = box.orchestration_instances()
    resume(box.connection, instance.instance_id)
    wait_until(lambda: sent(recorder) == [b"total "], what="the map of the second try")


def test_documents_of_pipelines_are_routed_by_what_they_promote(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, ROUTE)
    start_host(recorder)
    publish(box, "order", '{"kind": "typed", "n": 1}\n{"kind": "typed", "n": 2}\n')
    wait_until(lambda: is_empty(box), what="the end")
    assert sent(recorder) == [
        b"eyJraW5kIjogInR5cGVkIiwgIm4iOiAxfQp7ImtpbmQiOiAidHlwZWQiLCAibiI6IDJ9Cg==\r\n",
        b'{"kind": "typed", "built": 1}',
        b'{"kind": "typed", "n": 1}',
        b'{"kind": "typed", "n": 2}',
    ]


def test_the_story_shows_a_map_and_its_failure(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    caught = MAP_AND_WAIT.replace(
        "    first = await orchestrations.transform(order, to_text)\n",
        """
    try:
        first = await orchestrations.transform(order, to_text)
    except Exception:
        first = Message.of(b"nothing")
""",
    )
    (tmp_path / "order.xslt").write_text(STYLESHEET)
    apply_orchestrations(box, tmp_path, caught)
    start_host(recorder)
    publish(box, "order", "<order/>")
    wait_until(lambda: sent(recorder) == [b"nothing"], what="the failure was caught")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="it waits")
    [instance] = box.orchestration_instances()
    story = read_story(box.connection, instance.instance_id)
    assert story is not None
    assert story.story is not None
    [failed] = [line for line in story.story if line.has_failed]
    assert failed.what.startswith("step transform order.xslt failed: MapFailure: order.xslt: The map failed.")
    assert read_stored_journal(box.connection, instance.instance_id) is not None
