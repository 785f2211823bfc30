"""Documents without a subscriber count against the failure limit of their interchange, and share a report (NRF-04)."""

from __future__ import annotations

import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.routing_failure_reports import Unroutable
from postroom.agent.streaming import interchange as chunks
from postroom.agent.streaming import receiver as receiving
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import StateError
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import Instance, InstanceQuery, InstanceState, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.storage.receipts import read_progress
from postroom.operations.instances.advice import get_advice
from postroom.system_properties import BTS, ErrorReport
from tests.support.box import PROMOTE, Box, interchange
from tests.support.changes import resume, terminate
from tests.support.dequeue import dequeue_all, resume_now

EU, US, BAD = b'{"region": "EU"}\n', b'{"region": "US"}\n', b"x\n"


def lines(bad_documents: int | None = 3) -> pipelines.JsonLines:
    return pipelines.JsonLines(promote=PROMOTE, bad_documents=bad_documents)


def list_suspended(box: Box) -> list[Instance]:
    """Return the suspended instances that can be resumed, the oldest first."""
    found = list_instances(box.connection, InstanceQuery(states=[InstanceState.SUSPENDED]))
    return sorted(found, key=lambda one: one.seq)


def find_report(box: Box) -> Instance:
    """Return the only routing failure report."""
    [report] = list_instances(box.connection, InstanceQuery(states=[InstanceState.SUSPENDED_NOT_RESUMABLE]))
    return report


def assert_consistent(box: Box) -> None:
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def test_a_file_without_a_subscriber_is_suspended_as_one_instance(box: Box) -> None:
    location = box.add_location()
    whole = US * 30_000
    [received] = box.receive(location, whole)
    assert (received.published, received.suspended) == (0, 1)
    [instance] = list_suspended(box)
    assert instance.error_code == "ROUTING"
    assert instance.reason == (
        "10,000 of the first 10,000 documents have no subscriber or are bad, and bad_documents allows 1,000."
    )
    assert "Nothing of it was published. The first one without a subscriber: " in (instance.error_description or "")
    assert find_report(box).related_instance_id == instance.instance_id
    assert box.count("messages") == 2, "the interchange and its report"
    assert_consistent(box)


def test_a_rejected_interchange_is_published_when_it_is_resumed_with_a_subscriber(box: Box) -> None:
    location = box.add_location(lines())
    [received] = box.receive(location, US * 4 + EU)
    [instance] = list_suspended(box)
    box.add_port("All", "exists(Region)")
    published = resume_now(box, instance.instance_id)
    assert [one.context[BTS.InterchangeSequenceNumber] for one in published] == [1, 2, 3, 4, 5]
    assert {one.context[BTS.InterchangeID] for one in published} == {str(received.interchange_id)}
    assert_consistent(box)
    assert box.suspended() == [], "the report is deleted with its instance"


def test_a_rejected_interchange_that_is_resumed_without_a_subscriber_keeps_its_report(box: Box) -> None:
    box.receive(box.add_location(lines()), US * 4)
    [instance] = list_suspended(box)
    with pytest.raises(Unroutable, match="4 of the first 4 documents have no subscriber") as raised:
        resume_now(box, instance.instance_id)
    assert raised.value.report_id == find_report(box).instance_id


def test_documents_up_to_the_limit_are_suspended_alone_and_share_one_report(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    [received] = box.receive(box.add_location(lines()), US + EU + US * 2)
    assert (received.published, received.suspended) == (1, 3)
    documents, report = list_suspended(box), find_report(box)
    assert [one.error_code for one in documents] == ["ROUTING"] * 3
    assert report.related_instances == 3
    assert {report.related_instance_id, report.last_related_instance_id} < {one.instance_id for one in documents}
    assert report.reason.endswith("The report is about 3 documents; this is the first.")
    assert "the report about 3 instances" in (get_advice(report) or "")
    with pytest.raises(StateError, match="routing failure report") as raised:
        resume(box.connection, report.instance_id)
    assert str(report.last_related_instance_id) in raised.value.hint
    # A document is resumed alone, and a document that fails again keeps the report.
    dequeue_all(box)
    with pytest.raises(Unroutable) as failed:
        resume_now(box, documents[1].instance_id)
    assert failed.value.report_id == report.instance_id
    box.add_port("America", "Region == 'US'")
    box.delete_queued(documents[1].instance_id)
    published = resume_now(box, documents[2].instance_id)
    assert [one.context[BTS.InterchangeSequenceNumber] for one in published] == [4]


def test_a_shared_report_is_deleted_after_its_last_document(box: Box) -> None:
    """NRF-08."""
    box.receive(box.add_location(lines()), US * 3, US)
    documents = list_suspended(box)
    for document in documents[:2]:
        terminate(box.connection, document.instance_id)
    run_all_jobs_once(box.connection)
    assert len(box.suspended()) == 4, "two documents and two reports"
    terminate(box.connection, documents[2].instance_id)
    run_all_jobs_once(box.connection)
    assert [one.instance_id for one in list_suspended(box)] == [documents[3].instance_id]
    assert find_report(box).related_instance_id == documents[3].instance_id
    assert_consistent(box)


def test_bad_documents_and_documents_without_a_subscriber_count_together(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = box.add_location(lines())
    within, beyond, other = box.receive(location, BAD + US * 2 + EU, BAD * 2 + US * 2 + EU, EU)
    assert (within.published, within.suspended) == (1, 3)
    assert (beyond.published, beyond.suspended) == (0, 1)
    assert (other.published, other.suspended) == (1, 0)
    assert_consistent(box)


def test_a_pipeline_without_a_limit_suspends_all_documents_alone(box: Box) -> None:
    [received] = box.receive(box.add_location(lines(None)), US * 1_500)
    assert received.suspended == 1_500
    assert find_report(box).related_instances == 1_500


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_count_continues_in_the_next_chunk(box: Box, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool) -> None:
    """The count is stored in the receipts, so it survives a process that dies between two chunks."""
    for module in (chunks, receiving):
        monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    box.add_port("Europe", "Region == 'EU'")
    location = box.add_location(lines())
    one = interchange((EU * 3 + US) * 2 + (EU * 2 + US * 2) + EU * 40)
    with connect(box.url, user=box.host().role_name) as connection:
        unfinished = True
        while unfinished:
            [received] = Receiver(connection, RoutingTable()).receive(location, [one], pace=lambda: not is_interrupted)
            unfinished = received.unfinished
        [again] = Receiver(connection, RoutingTable()).receive(location, [one])
        progress = read_progress(connection, [one.interchange_id])[one.interchange_id]
    assert (again.published, again.suspended) == (0, 0)
    assert (progress.bad, progress.last_document, progress.done) == (2, 8, True)
    assert box.queued() == {"Europe": 6}
    *documents, rest = list_suspended(box)
    assert len(documents) == 2
    assert rest.reason.startswith("4 of the first 12 documents have no subscriber or are bad")
    assert "What follows document 8 was not published." in (rest.error_description or "")
    dequeue_all(box)
    box.add_port("America", "Region == 'US'")
    published = resume_now(box, rest.instance_id)
    assert [one.context[BTS.InterchangeSequenceNumber] for one in published] == list(range(9, 53))


def test_a_standard_interchange_fails_as_a_whole_with_one_report(box: Box) -> None:
    """NRF-16."""
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, recoverable=False))
    [received] = box.receive(location, US * 5)
    assert received.suspended == 1
    assert find_report(box).related_instances == 1


def test_a_shared_report_stays_if_an_error_message_refers_to_it(box: Box) -> None:
    """NRF-07."""
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    [received] = box.receive(box.add_location(lines(), route_failures=True), US * 3)
    assert (received.routed, received.suspended) == (3, 0)
    run_all_jobs_once(box.connection)
    report = find_report(box)
    assert report.related_instance_id is None
    named = {message.context.get(ErrorReport.RoutingFailureReportID) for message in box.messages()}
    assert named - {None} == {str(report.instance_id)}
