"""Plans describe changed definitions by the names of components and files."""

from __future__ import annotations

from typing import Any

from postroom import Property, adapters, pipelines
from postroom.application.define import complete_rows
from postroom.operations.deployment.differences import find_differences
from postroom.pipelines import components
from postroom.values import ValueType


def describe_differences(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = find_differences({"pipeline": after}, {"pipeline": before})
    return [(one.field, one.before, one.after) for one in found]


def test_changed_files_are_listed_by_name_without_content() -> None:
    before = {"kind": "receive", "files": {"app.py": "eNqold", "gone.py": "eNqgone"}}
    after = {"kind": "receive", "files": {"app.py": "eNqnew", "more.py": "eNqmore"}}
    changed, added, removed = describe_differences(before, after)
    assert changed[0] == "pipeline file app.py"
    assert all(one.startswith("version ") for one in changed[1:])
    assert changed[1] != changed[2]
    assert (added[0], added[1]) == ("pipeline file more.py", "none")
    assert (removed[0], removed[2]) == ("pipeline file gone.py", "none")


def test_files_added_to_a_pipeline_are_listed() -> None:
    found = describe_differences({"kind": "json"}, {"kind": "json", "files": {"app.py": "eNqold"}})
    assert [(field, before) for field, before, _ in found] == [("pipeline file app.py", "none")]
    assert "eNq" not in repr(found)


def test_components_are_described_by_name_and_settings() -> None:
    before = {"decoders": [], "disassemblers": [{"kind": "json", "promote": [], "recoverable": True}]}
    after = {
        "decoders": [
            {"file": "app.py", "name": "decrypt"},
            {"builtin": "compression", "name": "Gzip", "settings": {"limit": 10, "password": "p4ss", "charset": None}},
        ],
        "disassemblers": [
            {"kind": "xml", "promote": [{"property": "urn:x#Region", "type": int(ValueType.STR), "path": "r"}]}
        ],
    }
    found = {field: (before, after) for field, before, after in describe_differences(before, after)}
    assert found["pipeline decoders"] == ("none", "decrypt of app.py, Gzip (limit=10, password=(hidden))")
    assert found["pipeline disassemblers"][0] == "json (recoverable=True)"
    assert found["pipeline disassemblers"][1].startswith("xml (promote=")
    assert "{" not in repr(found).replace("{urn:x}", "").replace("{'pipeline", "")


def test_maps_are_described_by_source_and_target_type() -> None:
    one = {"builtin": "xslt", "name": "Xslt", "settings": {"source": "a", "target": "b", "stylesheet": "a.xsl"}}
    assert describe_differences({"maps": []}, {"maps": [one]}) == [("pipeline maps", "none", "a → b by a.xsl")]


def test_a_changed_assembler_is_described_by_its_settings() -> None:
    region = Property("Orders.Region", str)
    number = Property("Orders.Number", int)

    def store(**settings: Any) -> dict[str, Any]:
        return pipelines.Send(assemble=components.XmlAssembler(**settings)).model_dump(mode="json")

    before = store(demote={region: "/a/b", number: "/a/c"}, schemas={"schemas": [schema("urn:o#Order")]})
    after = store(
        demote={region: "/a/x", number: "/a/c"}, encoding="utf-16", schemas={"schemas": [schema("urn:o#New")]}
    )
    found = {field: (before, after) for field, before, after in describe_differences(before, after)}
    assert found["pipeline assembler demote Orders.Region"] == ("'/a/b' as str", "'/a/x' as str")
    assert found["pipeline assembler encoding"] == ("utf-8", "utf-16")
    assert found.keys() == {
        "pipeline assembler demote Orders.Region",
        "pipeline assembler encoding",
        "message type urn:o#New",
        "message type urn:o#Order",
    }
    [(field, described, none)] = describe_differences(before, pipelines.Send().model_dump(mode="json"))
    assert (field, none) == ("pipeline assemblers", "none")
    assert described.startswith("XmlAssembler (demote=Orders.Region at '/a/b' as str, Orders.Number at '/a/c' as int, ")
    assert "schemas=urn:o#Order, " in described


def schema(message_type: str, **fields: Any) -> dict[str, Any]:
    return {
        "message_type": message_type,
        "promoted": [],
        "distinguished": [],
        "envelope": False,
        "body": None,
        **fields,
    }


def promoted(name: str, path: str, value_type: ValueType = ValueType.STR, form: str = "string") -> dict[str, Any]:
    path = "".join(f"/*[local-name()='{step}' and namespace-uri()='']" for step in path.split("/"))
    return {"key": f"urn:props#{name}", "type": int(value_type), "path": path, "form": form, "default": None}


def test_changed_schemas_are_described_by_message_type_and_field() -> None:
    before = [
        schema("urn:o#Order", promoted=[promoted("Region", "Order/Region"), promoted("Total", "Order/Total")]),
        schema("urn:o#Gone"),
    ]
    after = [
        schema(
            "urn:o#Order",
            promoted=[
                promoted("Region", "Order/Head/Region"),
                promoted("Total", "Order/Total", ValueType.DECIMAL, "decimal"),
                promoted("Id", "Order/Id"),
            ],
            envelope=True,
            body="/*[local-name()='Order']",
        ),
        schema("urn:o#New", promoted=[promoted("Id", "New/Id")]),
    ]
    found = describe_differences({"schemas": {"schemas": before}}, {"schemas": {"schemas": after}})
    order = "message type urn:o#Order"
    assert found == [
        (
            f"{order}, promoted {{urn:props}}Region",
            "/Order/Region as str (string)",
            "/Order/Head/Region as str (string)",
        ),
        (f"{order}, promoted {{urn:props}}Total", "/Order/Total as str (string)", "/Order/Total as Decimal (decimal)"),
        (f"{order}, promoted {{urn:props}}Id", "none", "/Order/Id as str (string)"),
        (f"{order}, envelope", "no", "yes"),
        (f"{order}, documents of the envelope", "none", "/Order"),
        ("message type urn:o#New", "none", "a message that promotes {urn:props}Id"),
        ("message type urn:o#Gone", "a message that promotes nothing", "none"),
    ]
    stage = [{"kind": "json"}, {"kind": "xml-receive", "schemas": {"schemas": before}}]
    changed = [{"kind": "json"}, {"kind": "xml-receive", "schemas": {"schemas": after}}]
    assert describe_differences({"disassemblers": stage}, {"disassemblers": changed}) == found


def test_changed_columns_of_a_reader_are_listed_one_by_one() -> None:
    def location(columns: str) -> dict[str, Any]:
        reader = adapters.SparkReader("csv", "in", schema=columns)
        rows = complete_rows(pipelines.Rows(), reader)
        return {"adapter": reader.model_dump(mode="json"), "pipeline": rows.model_dump(mode="json")}

    def describe(before: str, after: str) -> list[tuple[str, str, str]]:
        return [(one.field, one.before, one.after) for one in find_differences(location(after), location(before))]

    assert describe("id bigint, total decimal(12,2), old string", "id bigint, total decimal(14,2), new date") == [
        ("adapter column total", "decimal(12,2)", "decimal(14,2)"),
        ("adapter column new", "none", "date"),
        ("adapter column old", "string", "none"),
    ]
    assert describe("a int, b int", "b int, a int") == [("adapter columns", "a int, b int", "b int, a int")]
    older = location("a int")
    older["pipeline"]["source"] = None
    [only] = find_differences(location("a int"), older)
    assert (only.field, only.before, only.after) == ("pipeline source", "none", "one column of csv")
