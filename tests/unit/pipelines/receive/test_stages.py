"""The stages of a receive pipeline with components: their order, their failures, and how components are shipped."""

from __future__ import annotations

import errno
import gzip
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.compute as pc
import pytest

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes, Context, Message, Part
from postroom.pipelines import Csv, Json, JsonLines, PassThrough, Receive, Xml, components, load_pipeline
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.shipping.shipped_files import ShippedFiles
from postroom.properties import Property
from postroom.system_properties import BTS, FILE
from tests.support.waiting import PATIENCE
from tests.unit.pipelines.conftest import Receive as Run

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", int)

LINES = b'{"region": "EU", "total": 1}\n{"region": "US", "total": 0}\n{"region": "CH", "total": 3}\n'


class Reverse(components.Decoder):
    def decode(self, message: Message) -> bytes:
        return message.data[::-1]


class Stamp(components.Decoder):
    party: str

    def decode(self, message: Message) -> Message:
        return message.with_context(message.context.write(BTS.OriginatorSID, self.party))


class Words(components.Disassembler):
    @property
    def promotes(self) -> tuple[Property, ...]:
        return (Region,)

    @property
    def recoverable(self) -> bool:
        return True

    def probe(self, message: Message) -> bool:
        return message.data.startswith(b"words ")

    def disassemble(self, message: Message) -> Iterator[Message | components.Suspend]:
        for word in message.data.split()[1:]:
            if word == b"bad":
                yield components.Suspend(body=word, reason="a bad word")
            else:
                yield Message.of(word, promoted={Region: word.decode(), BTS.MessageType: "word"})


class Positive(components.Validator):
    def validate_message(self, message: Message) -> None:
        if message.context[Total] == 0:
            raise ValueError("the total is 0")


class PositiveBatch(components.Validator):
    def validate_batch(self, batch: MessageBatch) -> Mapping[int, str]:
        zero = pc.equal(batch.table[Total.key], 0).to_pylist()
        return {row: "the total is 0" for row, is_zero in enumerate(zero) if is_zero}


def lines(**settings: object) -> JsonLines:
    return JsonLines(promote={Region: "region", Total: "total"}, **settings)  # type: ignore[arg-type]


# -- stages --------------------------------------------------------------------------------------------------------


def test_without_components_the_interchange_passes_through(receive: Run) -> None:
    assert receive(Receive(), b"anything").bodies == [b"anything"]


def test_decoders_run_in_order_before_the_disassembler(receive: Run) -> None:
    """RCV-02, RCV-04."""
    pipeline = Receive(decode=[Reverse(), components.Gzip()], disassemble=[lines()])
    received = receive(pipeline, gzip.compress(LINES)[::-1])
    assert received.column(Region.key) == ["EU", "US", "CH"]
    assert received.numbers == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "region"), [(b"<order><region>EU</region></order>", "EU"), (b'{"region": "US"}', "US"), (b"\n", None)]
)
def test_the_first_disassembler_whose_probe_accepts_runs(receive: Run, content: bytes, region: str | None) -> None:
    pipeline = Receive(
        disassemble=[Xml(promote={Region: "/order/region"}), Json(promote={Region: "region"}), PassThrough()]
    )
    assert receive(pipeline, content).column(Region.key) == [region]


def test_an_interchange_that_no_disassembler_recognises_fails(receive: Run) -> None:
    with pytest.raises(PipelineFailure, match="No disassembler of the pipeline recognises"):
        receive(Receive(disassemble=[Xml(), Json()]), b"text")


def test_the_second_disassembler_does_not_run_if_the_first_fails(receive: Run) -> None:
    """RCV-06."""
    with pytest.raises(PipelineFailure, match="not well-formed XML"):
        receive(Receive(disassemble=[Xml(), PassThrough()]), b"<order>")


def test_a_consumed_interchange_yields_no_messages(receive: Run) -> None:
    def consume(message: Message) -> None:
        return None

    assert receive(Receive(decode=[consume]), b"x").rows == []


def test_a_consuming_validator_ends_the_interchange(receive: Run) -> None:
    """RCV-05."""

    def stop_at_us(message: Message) -> object:
        return components.CONSUMED if message.context[Region] == "US" else None

    assert receive(Receive(disassemble=[lines()], validate=[stop_at_us]), LINES).column(Region.key) == ["EU"]


def test_a_user_disassembler_yields_messages_and_suspensions(receive: Run) -> None:
    """It can suspend documents (RCV-18)."""
    received = receive(Receive(disassemble=[Words(), PassThrough()], recoverable=True), b"words EU bad US")
    assert received.column(Region.key) == ["EU", "US"]
    assert received.column("message_type") == ["word", "word"]
    assert received.numbers == [1, 3]
    assert received.reasons[0].startswith("Words: a bad word")
    assert received.failures[0].body == b"bad"


def halves(message: Message) -> Iterator[Message]:
    middle = len(message.data) // 2
    yield Message.of(message.data[middle:])
    yield Message.of(b"small")
    yield Message.of(message.data[:middle])


def test_a_large_document_of_a_user_disassembler_is_passed_by_reference() -> None:
    first, second = b"a" * (FRAGMENT_SIZE + 1), b"b" * (FRAGMENT_SIZE + 1)
    [batch] = Receive(disassemble=[halves]).disassemble(Bytes(first + second))
    assert batch.messages["body"].to_pylist() == [None, b"small", None]
    assert batch.decoded is not None
    seen = MessageBatch(batch.messages, batch.decoded)
    assert [message.data for message in seen] == [second, b"small", first]


def test_promoting_what_was_not_declared_is_a_failure(receive: Run) -> None:
    def undeclared(message: Message) -> Iterator[Message]:
        yield Message.of(b"x", promoted={Total: 1})

    with pytest.raises(PipelineFailure, match=r"undeclared: it promotes Orders\.Total, which is not in its promotes\."):
        receive(Receive(disassemble=[undeclared]), b"x")


def test_properties_written_by_a_decoder_are_in_every_message() -> None:
    given = Context().write(FILE.ReceivedFileName, "orders.json")
    [batch] = Receive(decode=[Stamp(party="Contoso")]).disassemble(Bytes(b"x"), context=given)
    assert batch.decoded is not None
    assert batch.decoded.context[BTS.OriginatorSID] == "Contoso"
    assert batch.decoded.context[FILE.ReceivedFileName] == "orders.json"


# -- validation and modes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validator", [Positive, PositiveBatch])
def test_a_recoverable_validator_suspends_the_message_alone(
    receive: Run, validator: type[Positive] | type[PositiveBatch]
) -> None:
    received = receive(Receive(disassemble=[lines()], validate=[validator(recoverable=True)]), LINES)
    assert received.column(Region.key) == ["EU", "CH"]
    assert [bad.number for bad in received.failures] == [2]
    assert received.failures[0].body == b'{"region": "US", "total": 0}'
    assert f"Document 2: {validator.__name__}: the total is 0" in received.reasons[0]


def test_a_validator_fails_the_whole_interchange_by_default_before_the_first_batch() -> None:
    """LRG-06, RCV-16."""
    pipeline = Receive(disassemble=[lines()], validate=[Positive()])
    assert pipeline.recoverable
    many = b'{"region": "EU", "total": 1}\n' * 20 + b'{"region": "EU", "total": 0}\n'
    with pytest.raises(PipelineFailure, match="Document 21: Positive: the total is 0"):
        next(pipeline.disassemble(Bytes(many), batch_rows=2))


def test_all_valid_batches_are_yielded(receive: Run) -> None:
    many = b'{"region": "EU", "total": 1}\n' * 21
    received = receive(Receive(disassemble=[lines()], validate=[Positive()]), many, batch_rows=2)
    assert received.numbers == list(range(1, 22))


def test_a_standard_pipeline_fails_as_a_whole(receive: Run) -> None:
    pipeline = Receive(disassemble=[lines(recoverable=False)], validate=[Positive(recoverable=True)])
    with pytest.raises(PipelineFailure, match="Document 2"):
        receive(pipeline, LINES)


# -- parties -------------------------------------------------------------------------------------------------------


def test_the_first_resolver_that_knows_names_the_party(receive: Run) -> None:
    def nobody(message: Message) -> None:
        return None

    def by_region(message: Message) -> str | None:
        return {"EU": "Contoso"}.get(str(message.context[Region]))

    received = receive(Receive(disassemble=[lines()], resolve_party=[nobody, by_region]), LINES)
    assert received.column(BTS.OriginatorPID.key) == ["Contoso", None, None]


def test_a_resolver_that_fails_fails_the_interchange(receive: Run) -> None:
    """RCV-19."""

    def broken(message: Message) -> str:
        raise KeyError("directory")

    with pytest.raises(PipelineFailure, match="Document 1: broken: 'directory'"):
        receive(Receive(disassemble=[lines()], resolve_party=[broken]), LINES)


# -- components that misbehave -------------------------------------------------------------------------------------


def throws(message: Message) -> bytes:
    raise RuntimeError("no luck")


def ends_the_process(message: Message) -> bytes:
    raise SystemExit(1)


def gives_text(message: Message) -> bytes:
    return "text"  # type: ignore[return-value]


def gives_parts(message: Message) -> Message:
    return Message.of(b"a", parts=[Part(name=str(number), body=Bytes(b"b")) for number in range(1000)])


def gives_nothing(message: Message) -> Message:
    return Message()


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (throws, "throws: no luck"),
        (ends_the_process, "ends_the_process: 1"),
        (gives_text, "gives_text: The body of"),
        (gives_parts, "gives_parts: it returned 1001 parts"),
        (gives_nothing, "gives_nothing: it returned a message without parts"),
    ],
)
def test_an_exception_of_a_component_is_the_failure_of_the_message(
    receive: Run, component: object, reason: str
) -> None:
    """RCV-04."""
    with pytest.raises(PipelineFailure, match=reason):
        receive(Receive(decode=[component]), b"x")


def test_a_component_that_never_returns_is_abandoned(receive: Run) -> None:
    released = threading.Event()

    def never(message: Message) -> bytes:
        released.wait()
        return b""

    try:
        with pytest.raises(PipelineFailure, match=r"never: it did not return within 0\.05 seconds"):
            receive(Receive(decode=[never], seconds=0.05), b"x")
    finally:
        released.set()


def test_a_component_in_an_endless_loop_is_abandoned() -> None:
    ended = threading.Event()

    def circles(message: Message) -> bytes:
        try:
            while True:
                time.monotonic()
        finally:
            ended.set()

    with pytest.raises(PipelineFailure, match="circles: it did not return"):
        list(Receive(decode=[circles], seconds=0.05).disassemble(Bytes(b"x")))
    assert ended.wait(PATIENCE)


# -- definitions ---------------------------------------------------------------------------------------------------


def test_all_problems_of_a_pipeline_are_listed() -> None:
    pipeline = Receive(
        decode=[Json(), Positive(), components.Charset("klingon")],
        disassemble=[Csv(delimiter=""), Words],
        validate=["order.xsd"],
        seconds=0,
    )
    assert pipeline.problems() == [
        "decode, component 1: pipelines.Json is a disassembler and cannot be used in this stage.",
        "decode, component 2: Positive is not a Decoder and cannot be used in this stage.",
        "decode, component 3: 'klingon' is not a known text encoding.",
        "disassemble, component 1: The delimiter '' has 0 characters; it must be one.",
        "disassemble, component 2: Words is a class; write Words().",
        "validate, component 1: 'order.xsd' is neither a component nor a function.",
        "seconds is 0.0, but must be more than 0.",
    ]


def test_a_component_defined_inside_a_function_is_rejected(tmp_path: Path) -> None:
    def inside(message: object) -> object:
        return message

    [problem] = Receive(decode=[inside]).packing_problems(tmp_path)
    assert "is defined inside a function" in problem
    [problem] = Receive(decode=[lambda message: message]).packing_problems(tmp_path)
    assert "has no name to load it by" in problem


def test_an_error_has_the_file_name_that_the_user_knows(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def fails(message):\n    raise KeyError('x')\n")
    files = ShippedFiles.collect(tmp_path, ["checks.py"])
    pipeline = Receive(validate=[{"file": "checks.py", "name": "fails"}], files=files)
    with pytest.raises(PipelineFailure) as raised:
        list(pipeline.disassemble(Bytes(b"a")))
    assert raised.value.why == "KeyError at checks.py:2."


OWN = """
from beside import SHIFT
from postroom.message import Message
from postroom.pipelines import components


class Shift(components.Decoder):
    by: int = SHIFT

    def decode(self, message: Message) -> bytes:
        return bytes(byte + self.by for byte in message.data)


def shout(message: Message) -> bytes:
    return message.data.upper()
"""


def test_components_of_the_applications_folder_are_shipped_with_the_definition(tmp_path: Path) -> None:
    from postroom.application import load

    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("SHIFT = 1\n")
    (tmp_path / "app.py").write_text(
        "from postroom import Application, adapters, pipelines\n"
        "from own import Shift, shout\n"
        "app = Application('shifts')\n"
        "app.receive_port('In').location('in', adapters.File('in'), pipeline=pipelines.Receive(decode=[\n"
        "    Shift(), Shift(by=2), shout]))\n"
    )
    stored = load(tmp_path / "app.py").to_stored()
    for file in tmp_path.iterdir():
        file.unlink()
    definition = json.loads(json.dumps(stored))["receive_ports"][0]["locations"][0]["pipeline"]
    assert sorted(definition["files"]) == ["beside.py", "own.py"]
    pipeline = load_pipeline(definition)
    [batch] = pipeline.disassemble(Bytes(b"abc"))
    assert batch.messages["body"].to_pylist() == [b"DEF"]


def test_a_component_that_cannot_be_loaded_fails_the_message() -> None:
    stored = {"kind": "receive", "decoders": [{"module": "nowhere_at_all", "name": "Edi", "settings": {}}]}
    with pytest.raises(PipelineFailure, match="The component Edi cannot be loaded"):
        list(load_pipeline(stored).disassemble(Bytes(b"x")))


def test_out_of_memory_while_loading_a_component_is_an_environment_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def import_module(_: str) -> None:
        raise MemoryError

    monkeypatch.setattr("postroom.pipelines.components.stored_component.importlib.import_module", import_module)
    stored = {"kind": "receive", "decoders": [{"module": "own", "name": "Edi", "settings": {}}]}
    with pytest.raises(MemoryError):
        list(load_pipeline(stored).disassemble(Bytes(b"x")))


def test_a_validator_without_a_validate_method_is_rejected() -> None:
    class Idle(components.Decoder):
        pass

    with pytest.raises(TypeError, match=r"abstract method .?decode"):
        Idle()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="Blind validates nothing"):

        class Blind(components.Validator):
            pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_is_an_environment_error(receive: Run, number: int) -> None:
    """Otherwise every message would be suspended."""

    def spools(message: Message) -> bytes:
        raise OSError(number, os.strerror(number))

    def judges(message: Message) -> None:
        raise OSError(number, os.strerror(number))

    for pipeline in (Receive(decode=[spools]), Receive(disassemble=[JsonLines()], validate=[judges])):
        with pytest.raises(OSError, match=os.strerror(number)):
            receive(pipeline, LINES)


def test_a_missing_file_of_a_component_is_a_failure_of_the_message(receive: Run) -> None:
    def looks_up(message: Message) -> bytes:
        return Path("/nowhere/rates.csv").read_bytes()

    with pytest.raises(PipelineFailure, match=r"looks_up: .*rates\.csv"):
        receive(Receive(decode=[looks_up]), LINES)


def test_a_stage_has_at_most_255_components() -> None:
    """RCV-02."""
    assert Receive(decode=[Reverse()] * 255).problems() == []
    [problem] = Receive(decode=[Reverse()] * 256).problems()
    assert "256" in problem


def test_each_pipeline_has_its_own_settings_of_a_component() -> None:
    """RCV-08."""
    for party in ("Contoso", "Fabrikam"):
        [batch] = Receive(decode=[Stamp(party=party)]).disassemble(Bytes(b"x"), context=Context())
        assert batch.decoded is not None
        assert batch.decoded.context[BTS.OriginatorSID] == party
