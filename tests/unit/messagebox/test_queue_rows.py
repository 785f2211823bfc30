"""Only a few procedures write rows into the queues or remove them from there, and one reads claimed messages.

A procedure that moves rows takes them out of a queue as values of the type queue_row, and gives them to one of the
writers or to int_finish. What must happen to every row that enters or leaves a queue has a place in these procedures.
"""

from __future__ import annotations

import re

import pytest

from postroom.messagebox.statements import list_statements, statement

QUEUE = r"(?:messagebox\.)?(?:work_queue|scheduled_queue|suspended_queue|__HOST___q(?:_scheduled|_suspended)?)\b"
FOLDERS = ("procedures", "procedures/host", "procedures/jobs", "procedures/operators", "queries", "checks")

#: The procedures that write queue rows. COPY is the other way for the rows of new messages (storage/copy_rows.py).
WRITERS = {
    "procedures/int_enqueue",
    "procedures/int_schedule",
    "procedures/int_suspend",
    # The rows of a new message: they draw their numbers here, and every publish calls it.
    "procedures/evaluate_subscriptions",
    # Every dequeue calls it. It takes three quarters of the time, and names only the tables of its host, so that it
    # does not wait while another host is created.
    "procedures/host/release_due",
}
#: The procedures that remove queue rows, and what gets the rows.
REMOVERS = {
    "procedures/host/int_take_claimed": None,  # returns them
    "procedures/int_take_instances": None,
    "procedures/int_take_suspended": None,
    "procedures/int_take_unreceived": None,
    "procedures/host/release_due": "INSERT INTO __HOST___q",
    "procedures/resume_stopped": "int_enqueue",
    "procedures/resume_stopped_group": "int_enqueue",
    "procedures/host/end_orchestrations": "int_suspend",
    "procedures/jobs/dead_processes_cleanup": "int_suspend",
    "procedures/jobs/expire_program_subscriptions": "int_suspend",
    "procedures/jobs/operate_on_instances": "int_finish",
    # The messages wait at their orchestration instance from then on.
    "procedures/host/claim_orchestrations": "INSERT INTO orchestration_messages",
    # Every delivered message passes here, and converting its row to a queue_row takes a fifth of the time.
    "procedures/host/complete_messages": "int_release",
    # A batch may have 100,000 rows, which are released in groups.
    "procedures/host/complete_sink_batch": "int_release",
}


def find_statements(pattern: str) -> set[str]:
    names = (name for folder in FOLDERS for name in list_statements(folder))
    return {name for name in names if re.search(pattern, statement(name), re.IGNORECASE)}


def test_only_the_writers_insert_queue_rows() -> None:
    assert find_statements(rf"\bINSERT\s+INTO\s+(?:ONLY\s+)?{QUEUE}") == WRITERS


def test_only_the_removers_delete_queue_rows() -> None:
    assert find_statements(rf"\bDELETE\s+FROM\s+(?:ONLY\s+)?{QUEUE}") == set(REMOVERS)


@pytest.mark.parametrize(("name", "receiver"), REMOVERS.items())
def test_removed_rows_are_returned_or_given_to_one_procedure(name: str, receiver: str | None) -> None:
    text = statement(name)
    receivers = re.findall(r"\b(?:int_enqueue|int_schedule|int_suspend|int_finish)(?=\()", text)
    if receiver is None:
        assert receivers == []
        assert re.search(r"RETURNS messagebox\.queue_row\[\]", text)
    else:
        assert receiver in text
        assert set(receivers) <= {receiver}


def test_rows_are_finished_by_three_procedures() -> None:
    released = find_statements(r"\bint_release\s*\(") & (set(REMOVERS) | find_statements(r"\bint_take_\w+\("))
    orchestrations = {
        "procedures/terminate_instances",
        "procedures/host/end_orchestrations",
    }  # release messages that orchestration instances have received, which are in no queue
    assert released - orchestrations == {"procedures/host/complete_messages", "procedures/host/complete_sink_batch"}
    assert "int_release(" in statement("procedures/int_finish")


def test_claimed_messages_are_read_by_one_function() -> None:
    readers = find_statements(r"\bJOIN LATERAL read_content\s*\(")
    assert readers == {
        "procedures/host/dequeue_messages",
        "procedures/host/claim_for_program",
        "procedures/host/read_sink_messages",
        "procedures/host/read_orchestration_messages",
        "procedures/host/apply_to_lookup",
    }
    assert [name for name in readers if re.search(r"\b(?:FROM|JOIN) (?:spool|parts)\b", statement(name))] == []
