"""The stages of a send pipeline: their order, their failures, and how components are shipped (SND-01 … 03)."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import PipelineFailure
from postroom.message import Body, FileSlice, Message
from postroom.pipelines import Json, Send, components
from postroom.pipelines.components.contract import Consumed
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT, load_send_pipeline
from postroom.properties import Property
from postroom.system_properties import BTS
from tests.support.waiting import PATIENCE

Region = Property("Orders.Region", str)
MESSAGE = Message.of(b"body", promoted={Region: "EU"})


class Before(components.PreAssembler):
    text: str = "before"

    def prepare(self, message: Message) -> bytes:
        return f"{self.text}({message.data.decode()})".encode()


class Assemble(components.Assembler):
    @property
    def demotes(self) -> tuple[Property, ...]:
        return (Region,)

    def assemble(self, message: Message) -> Message:
        region = message.context[Region]
        return message.with_body(f"{region}[{message.data.decode()}]".encode())


class Encode(components.Encoder):
    def encode(self, message: Message) -> Body:
        return message.with_body(message.data + b".encoded").parts[0].body


def shout(message: Message) -> bytes:
    return message.data.upper()


def consume(message: Message) -> None:
    return None


def fail(message: Message) -> bytes:
    raise ValueError("the receiver does not accept it")


def hang(message: Message) -> bytes:
    threading.Event().wait(60)
    return b""


def write_text(message: Message) -> str:
    return "text"


def run(pipeline: Send, message: Message = MESSAGE) -> Message:
    sent = pipeline.run(message)
    assert sent is not None
    return sent


def test_the_stages_run_in_order_and_the_message_keeps_its_id_and_context() -> None:
    pipeline = Send(pre_assemble=[Before(), Before(text="again")], assemble=Assemble(), encode=[Encode(), shout])
    assert pipeline.problems() == []
    assert pipeline.demotes == (Region,)
    sent = run(pipeline)
    assert sent.data == b"EU[AGAIN(BEFORE(BODY))].ENCODED"
    assert sent.message_id == MESSAGE.message_id
    assert sent.context == MESSAGE.context


def test_a_pipeline_without_components_does_not_touch_the_message() -> None:
    assert not PASS_THRU_TRANSMIT
    assert PASS_THRU_TRANSMIT.run(MESSAGE) is MESSAGE


@pytest.mark.parametrize(
    "pipeline",
    [Send(pre_assemble=[consume], encode=[fail]), Send(assemble=consume, encode=[fail]), Send(encode=[consume, fail])],
)
def test_a_component_that_returns_none_consumes_the_message(pipeline: Send) -> None:
    """SND-02."""
    assert pipeline.run(MESSAGE) is None


def test_an_exception_of_a_component_is_a_failure_with_its_name_and_line() -> None:
    with pytest.raises(PipelineFailure) as caught:
        Send(encode=[fail]).run(MESSAGE)
    assert caught.value.what == "fail: the receiver does not accept it"
    assert "ValueError at" in caught.value.why
    assert not caught.value.can_retry


def test_a_result_that_is_not_bytes_is_a_failure() -> None:
    with pytest.raises(PipelineFailure, match="write_text: The body of a message is bytes, not str"):
        Send(encode=[write_text]).run(MESSAGE)


class HasRegion(components.Validator):
    def validate_message(self, message: Message) -> Consumed | None:
        if message.data == b"drop":
            return components.CONSUMED
        if Region not in message.context:
            raise ValueError("it has no region")
        return None


class BatchHasRegion(components.Validator):
    def validate_batch(self, batch: MessageBatch) -> dict[int, str]:
        assert [message.data for message in batch] == [b"body"]
        assert batch.table["message_type"].to_pylist() == ["order"]
        return {} if Region.key in batch.table.schema.names else {0: "it has no region"}


@pytest.mark.parametrize("validator", [HasRegion(), BatchHasRegion()])
def test_a_validator_before_the_assembler_accepts_or_rejects_the_message(validator: components.Validator) -> None:
    pipeline = Send(pre_assemble=[validator])
    assert pipeline.problems() == []
    accepted = Message.of(b"body", promoted={Region: "EU", BTS.MessageType: "order"})
    assert pipeline.run(accepted) == accepted
    with pytest.raises(PipelineFailure, match="HasRegion: it has no region"):
        pipeline.run(Message.of(b"body", promoted={BTS.MessageType: "order"}))


def test_a_validator_may_consume_the_message() -> None:
    assert Send(pre_assemble=[HasRegion()], encode=[fail]).run(Message.of(b"drop")) is None


def test_the_schemas_of_a_validator_are_shipped_with_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"required": ["total"]}')
    pipeline = Send(pre_assemble=[components.JsonSchema("order.json")])
    assert pipeline.packing_problems(tmp_path) == []
    packed = load_send_pipeline(pipeline.pack(tmp_path).model_dump(mode="json"))
    assert run(packed, Message.of(b'{"total": 1}')).data == b'{"total": 1}'
    with pytest.raises(PipelineFailure, match='"total" is a required property'):
        packed.run(Message.of(b"{}"))
    with pytest.raises(PipelineFailure, match="The message has no body"):
        packed.run(Message())


def test_every_component_sees_the_same_message_id() -> None:
    seen = []

    def note(message: Message) -> bytes:
        seen.append(message.message_id)
        return message.data + b"."

    run(Send(pre_assemble=[note], encode=[note, note]))
    assert seen == [MESSAGE.message_id] * 3


def test_a_component_that_does_not_return_fails_after_the_time_limit() -> None:
    started = time.monotonic()
    with pytest.raises(PipelineFailure, match=r"hang: it did not return within 0\.05 seconds"):
        Send(encode=[hang], seconds=0.05).run(MESSAGE)
    assert time.monotonic() - started < PATIENCE


def test_a_changed_context_reaches_the_adapter() -> None:
    def address(message: Message) -> Message:
        return message.with_context(message.context.write(BTS.OutboundTransportLocation, "file:///out"))

    sent = run(Send(encode=[address]))
    assert sent.context[BTS.OutboundTransportLocation] == "file:///out"
    assert sent.message_id == MESSAGE.message_id


def test_the_body_is_read_in_the_thread_of_the_caller(tmp_path: Path) -> None:
    """Only that thread notices that another host instance has taken over the claim."""
    readers = []

    class Watched:
        size = 3

        def chunks(self):  # type: ignore[no-untyped-def]
            readers.append(threading.current_thread())
            yield b"abc"

    assert run(Send(encode=[shout]), Message.of(Watched())).data == b"ABC"
    assert readers == [threading.current_thread()]
    (tmp_path / "body").write_bytes(b"file")
    assert run(Send(encode=[shout]), Message.of(FileSlice(path=tmp_path / "body", length=4))).data == b"FILE"


def test_every_problem_is_listed() -> None:
    pipeline = Send(
        pre_assemble=[Encode(), Before],
        assemble=[Assemble(), Assemble()],
        encode=[components.Gzip(), 5, Json()],
        seconds=0,
    )
    assert pipeline.problems() == [
        "pre_assemble, component 1: Encode is not a PreAssembler or Validator and cannot be used in this stage.",
        "pre_assemble, component 2: Before is a class; write Before().",
        "assemble has 2 components; the maximum is 1.",
        "encode, component 1: Gzip is not an Encoder and cannot be used in this stage.",
        "encode, component 2: 5 is neither a component nor a function.",
        f"encode, component 3: {Json()!r} is neither a component nor a function.",
        "seconds is 0.0, but must be more than 0.",
    ]


def test_a_packed_pipeline_runs_from_its_stored_form(tmp_path: Path) -> None:
    source = "from postroom.pipelines import components\n\ndef shout(message):\n    return message.data.upper()\n"
    (tmp_path / "own.py").write_text(source)
    scope: dict[str, Any] = {"__name__": "own"}
    exec(compile(source, str(tmp_path / "own.py"), "exec"), scope)
    pipeline = Send(encode=[scope["shout"]])
    assert pipeline.packing_problems(tmp_path) == []
    packed = pipeline.pack(tmp_path)
    loaded = load_send_pipeline(packed.model_dump(mode="json"))
    (tmp_path / "own.py").unlink()
    assert run(loaded).data == b"BODY"
    assert run(pickle.loads(pickle.dumps(loaded))).data == b"BODY"
    assert load_send_pipeline({"kind": "send"}) == PASS_THRU_TRANSMIT
