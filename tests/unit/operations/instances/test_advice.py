"""There is advice for every error code of a suspended instance."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroom.cli.main import COMMANDS
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.instances import Instance, InstanceState
from postroom.messagebox.queues import Cause, QueueTask
from postroom.operations.instances.advice import get_advice
from postroom.pipelines.rows.document import LINE_HINT

NOW = datetime(2026, 1, 31, tzinfo=UTC)
ERRORS = Path(__file__).parents[4] / "docs" / "reference" / "errors.md"


def instance(**changes: object) -> Instance:
    values: dict[str, object] = {
        "instance_id": uuid.UUID(int=1),
        "state": InstanceState.SUSPENDED,
        "host": "Main",
        "service_class": ServiceClass.MESSAGING_IN_PROCESS,
        "service_id": None,
        "service": "Europe",
        "port": "Europe",
        "subscription_id": 1,
        "message_id": uuid.UUID(int=2),
        "task": QueueTask.DELIVER,
        "attempt": 0,
        "priority": 5,
        "seq": 1,
        "enqueued_at": NOW,
        "retry_at": None,
        "timer_at": None,
        "suspended_at": NOW,
        "cause": Cause.FAILURE,
        "error_code": "DELIVERY",
        "error_description": "It failed.",
        "adapter": "file",
        "uri": "file:///out",
        "related_instance_id": None,
    }
    return Instance(**{**values, **changes})  # type: ignore[arg-type]


def test_the_advice_for_a_bad_row_names_the_commands_for_all_rows_of_its_file() -> None:
    description = f"Line 7 of big.csv does not fit the schema.\n{LINE_HINT}"
    advice = get_advice(instance(error_code="PIPELINE", error_description=description)) or ""
    assert f"postroom instance save-rows {uuid.UUID(int=1)} FILE" in advice
    assert "postroom instance resume-rows FILE" in advice
    assert "save-rows" not in (get_advice(instance(error_code="PIPELINE")) or "")


@pytest.mark.parametrize(
    "code",
    [
        "PIPELINE",
        "ROUTING",
        "DELIVERY",
        "DELIVERY_REFUSED",
        "ADDRESS",
        "PORT_STOPPED",
        "PORT_GONE",
        "OPERATOR",
        "UNEXPECTED",
    ],
)
def test_the_advice_for_a_suspended_instance_contains_a_command(code: str) -> None:
    assert f"`{code}`" in ERRORS.read_text(encoding="utf-8")
    advice = get_advice(instance(error_code=code))
    assert advice is not None
    assert f"postroom instance resume {uuid.UUID(int=1)}" in advice
    assert all(noun in COMMANDS for noun in re.findall(r"postroom ([a-z]+)", advice))
    assert ("--body FILE" in advice) == (code in ("PIPELINE", "DELIVERY_REFUSED"))


@pytest.mark.parametrize(
    ("description", "advice"),
    [
        ("The subscriber Europe is enlisted but stopped.", ["postroom port start Europe"]),
        (
            "The subscriber Europe, or the send port group G that the message comes through, is enlisted but stopped.",
            ["postroom port start Europe, or postroom group start GROUP"],
        ),
        (
            "The subscriber Europe2 is enlisted but stopped.",
            ["The port has the name 'Europe' now.\n", "postroom port start Europe\n"],
        ),
    ],
)
def test_the_advice_for_a_stopped_port_starts_it_by_the_name_it_has_today(description: str, advice: list[str]) -> None:
    given = get_advice(instance(error_code="PORT_STOPPED", error_description=description)) or ""
    assert all(each in given for each in advice)
    assert ("has the name" in given) == (len(advice) == 2)


def test_an_unread_message_can_always_be_corrected() -> None:
    assert "--body FILE" in (get_advice(instance(error_code="UNEXPECTED", task=QueueTask.RECEIVE)) or "")


def test_the_advice_for_a_report_names_its_instance() -> None:
    state, cause = InstanceState.SUSPENDED_NOT_RESUMABLE, Cause.ROUTING_FAILURE_REPORT
    about = uuid.UUID(int=7)
    advice = get_advice(instance(state=state, cause=cause, error_code="ROUTING", related_instance_id=about))
    assert advice is not None
    assert str(about) in advice
    alone = get_advice(instance(state=state, cause=cause, error_code="ROUTING", adapter=None, uri=None))
    assert alone is not None
    assert "publish that was rejected" in alone
    assert "terminate" in alone
    received = get_advice(instance(state=state, cause=cause, error_code="ROUTING"))
    assert received is not None
    assert "was routed as an error message" in received
    assert "terminate" in received


def test_only_suspended_instances_have_advice() -> None:
    assert get_advice(instance(state=InstanceState.READY_TO_RUN)) is None
    assert "instance resume" not in (get_advice(instance(state=InstanceState.SUSPENDED_NOT_RESUMABLE)) or "")


def test_the_advice_for_a_missing_originator_is_a_pipeline_change() -> None:
    advice = get_advice(instance(error_code="AUTHENTICATION", task=QueueTask.RECEIVE))
    assert advice is not None
    assert advice.index("Apply") < advice.index("postroom instance resume")


def test_the_first_advice_for_an_unreadable_document_is_to_correct_it() -> None:
    advice = get_advice(instance(error_code="PIPELINE")) or ""
    message, pipeline = advice.splitlines()
    assert message.startswith("Correct the message: postroom message body")
    assert pipeline.startswith("Or correct the pipeline and apply it, then: postroom instance resume")


@pytest.mark.parametrize("code", ["ORCHESTRATION", "ORCHESTRATION_CODE", "JOURNAL", "JOURNAL_FULL", "STEP_RESULT"])
def test_the_advice_for_a_failed_orchestration_is_to_correct_it(code: str) -> None:
    advice = get_advice(instance(error_code=code, service_class=ServiceClass.ORCHESTRATIONS)) or ""
    assert advice.startswith("Correct the orchestration and apply it, then: postroom instance resume")
