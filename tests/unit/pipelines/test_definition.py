from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import datetime
from decimal import Decimal

import pytest
from pydantic import ValidationError

from postroom import pipelines
from postroom.errors import DefinitionError, PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import Csv, Json, JsonLines, PassThrough, ReceivePipeline, Xml, load_pipeline
from postroom.properties import Property
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Due = Property("Orders.Due", datetime)

DEFINITIONS: list[ReceivePipeline] = [
    PassThrough(),
    Json(promote={Region: "region", Total: r"totals.net\.eur"}, message_type="order"),
    Json(),
    JsonLines(promote={Due: "due"}, recoverable=False),
    JsonLines(bad_documents=None),
    Xml(promote={Region: "/o:order/o:region"}, namespaces={"o": "urn:orders"}, split="/o:orders/o:order"),
    Csv(promote={Region: "region"}, delimiter=";", quote=None, header=("region", "total"), encoding="latin-1"),
    Csv(promote={Region: "region"}),
    Csv(header=False),
]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_a_definition_survives_storage_and_transport(definition: ReceivePipeline) -> None:
    stored = json.loads(json.dumps(definition.model_dump(mode="json")))

    assert load_pipeline(stored) == definition
    assert load_pipeline(stored).promotes == definition.promotes
    assert pickle.loads(pickle.dumps(definition)) == definition
    assert definition.problems() == []


def test_a_copy_is_disassembled_with_its_own_settings() -> None:
    split = Json(promote={Region: "region"}, split="$")
    body = Bytes(b'[{"region": "EU"}]')
    assert [batch.messages["body"].to_pylist() for batch in split.disassemble(body)] == [[b'{"region": "EU"}']]

    assert pickle.loads(pickle.dumps(split)) == split
    with pytest.raises(PipelineFailure, match="not a JSON object"):
        list(split.model_copy(update={"split": None}).disassemble(body))


def test_a_property_is_stored_by_its_key_and_the_number_of_its_type() -> None:
    assert Json(promote={Total: "total"}).model_dump(mode="json") == {
        "kind": "json",
        "promote": [{"property": "Orders#Total", "type": 3, "path": "total"}],
        "message_type": None,
        "split": None,
        "recoverable": False,
        "bad_documents": 1_000,
    }


def test_definitions_differ_by_type_and_path_of_what_they_promote() -> None:
    same = Json(promote={Property("Orders.Region", str): "region"})
    assert same == Json(promote={Region: "region"})
    assert same != Json(promote={Region: "area"})
    assert same != Json(promote={Property("Orders.Region", int): "region"})
    assert same.promotions[Region] == "region"
    assert Total not in same.promotions


def test_a_definition_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Json().message_type = "order"


def test_recoverable_has_a_default_by_format() -> None:
    assert [definition.recoverable for definition in (PassThrough(), Json(), Xml(), JsonLines(), Csv())] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_the_bad_document_limit_of_an_earlier_version_has_a_default() -> None:
    lines: dict[str, object] = {"kind": "json-lines", "promote": [], "message_type": None, "recoverable": True}
    assert load_pipeline(lines) == JsonLines()
    assert load_pipeline(lines).bad_documents == 1_000
    stored = {"kind": "receive", "disassemblers": [lines], "recoverable": True, "seconds": 60.0}
    assert load_pipeline(stored).bad_documents == 1_000


@pytest.mark.parametrize(
    ("disassemblers", "allowed"),
    [
        ([], 1_000),
        ([JsonLines(bad_documents=5), Csv()], 5),
        ([JsonLines(bad_documents=None), Csv(bad_documents=5_000)], 5_000),
        ([JsonLines(bad_documents=None)], None),
    ],
)
def test_the_bad_document_limit_is_the_minimum_of_the_disassemblers(
    disassemblers: list[ReceivePipeline], allowed: int | None
) -> None:
    definition = pipelines.Receive(disassemble=disassemblers)
    assert definition.bad_documents == allowed
    assert load_pipeline(definition.model_dump(mode="json")).bad_documents == allowed
    for said in (7, None):
        own = pipelines.Receive(disassemble=disassemblers, bad_documents=said)
        assert own.bad_documents == said
        assert load_pipeline(own.model_dump(mode="json")).bad_documents == said
    assert pipelines.Receive(disassemble=disassemblers, bad_documents=-1).problems() == [
        "bad_documents is -1, but must be 0 or more."
    ]


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (Json(promote={Region: ""}), "The path of Orders.Region is empty."),
        (Json(promote={Region: "a..b"}), "'a..b' of Orders.Region cannot be read"),
        (Json(promote={Region: "a."}), "'a.' of Orders.Region cannot be read"),
        (Json(promote={Region: r"a\b"}), "cannot be read"),
        (Json(promote={Region: 'a"b'}), "cannot be read"),
        (Json(promote={Region: "$.region"}), "write 'region'"),
        (
            Json(promote={Region: "customer", Total: "customer.total"}),
            "The path of Orders.Total leads through 'customer'",
        ),
        (Json(message_type=""), "The message type is empty"),
        (Json(message_type="x" * 257), "at most 256 characters"),
        (JsonLines(promote={Region: " "}), "The path of Orders.Region is empty."),
        (JsonLines(promote={BTS.ReceivePortName: "port"}), "BTS.ReceivePortName is set by the engine"),
        (JsonLines(promote={Region: "a", Property("Orders.Region", int): "b"}), "Orders.Region is promoted twice"),
        (JsonLines(bad_documents=-1), "bad_documents is -1, but must be 0 or more."),
        (Csv(bad_documents=-1), "bad_documents is -1, but must be 0 or more."),
        (Json(split="$", recoverable=True, bad_documents=-2), "bad_documents is -2, but must be 0 or more."),
        (Xml(promote={Region: ""}), "The path of Orders.Region is empty."),
        (Xml(promote={Region: "/order["}), "'/order[' of Orders.Region cannot be read"),
        (Xml(promote={Region: "/o:order"}), "undefined namespace prefix"),
        (Xml(promote={Region: "count(/order)"}), "computes a value"),
        (Xml(namespaces={"": "urn:orders"}), "XPath has no default namespace"),
        (Xml(namespaces={"o": ""}), "XPath has no default namespace"),
        (Xml(split=""), "that splits the envelope cannot be read"),
        (Xml(split="string(/orders)"), "computes a value"),
        (Csv(delimiter=";;"), "The delimiter ';;' has 2 characters"),
        (Csv(delimiter="\n"), "The delimiter '\\n' cannot be distinguished from a line end"),
        (Csv(quote=""), "The quote '' has 0 characters"),
        (Csv(delimiter='"'), "the same character"),
        (Csv(encoding="utf-9"), "'utf-9' is not a known text encoding"),
        (Csv(encoding="rot13"), "'rot13' is not a known text encoding"),
        (Csv(encoding="utf-16"), "Lines cannot be found in the encoding 'utf-16'"),
        (Csv(encoding="utf-7"), "Lines cannot be found in the encoding 'utf-7'"),
        (Csv(header=()), "The list of column names is empty."),
        (Csv(header=("a", "b", "a")), "Two columns are named 'a'."),
        (Csv(header=("a",), promote={Region: "region"}), "'region', which is not among the columns"),
        (Csv(header=False, promote={Region: "region"}), "columns without names"),
    ],
)
def test_a_problem_is_reported_and_not_raised(definition: ReceivePipeline, problem: str) -> None:
    """CTX-09."""
    assert len(definition.problems()) == 1
    assert problem in definition.problems()[0]


def test_all_problems_of_a_definition_are_reported() -> None:
    definition = Csv(
        promote={Region: "", BTS.SPName: "b"}, delimiter="--", quote="", header=("a", "a"), encoding="utf-9"
    )
    assert len(definition.problems()) == 7


def test_a_property_can_be_stored_twice_and_is_a_problem() -> None:
    """CTX-17."""
    entry = {"property": "Orders#Region", "type": 1, "path": "region"}
    definition = load_pipeline({"kind": "json", "promote": [entry, entry]})
    assert definition.problems() == ["Orders.Region is promoted twice; a property has one value."]


@pytest.mark.parametrize("promote", [3, {"Orders.Region": "region"}, {Region: 5}])
def test_an_argument_of_the_wrong_type_is_rejected_at_once(promote: object) -> None:
    with pytest.raises(ValidationError):
        Json(promote=promote)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"kind": "fax"},
        {"kind": "json", "colour": "red"},
        {"kind": "json", "promote": ["region"]},
        {"kind": "json", "promote": [{"property": "Orders#Region", "type": 99, "path": "region"}]},
        {"kind": "csv", "delimiter": 5},
    ],
)
def test_an_invalid_stored_pipeline_is_rejected(stored: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match="not a stored receive pipeline"):
        load_pipeline(stored)


def test_defining_needs_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys; from postroom import pipelines; pipelines.Json().problems(); pipelines.Csv().problems();"
        "print({'pyarrow', 'lxml', 'msgspec', 'numpy'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_the_public_names() -> None:
    assert pipelines.__all__ == sorted(pipelines.__all__)
    assert all(hasattr(pipelines, name) for name in pipelines.__all__)
