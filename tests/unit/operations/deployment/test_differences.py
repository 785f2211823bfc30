"""Plans describe changed definitions by the names of components and files."""

from __future__ import annotations

from typing import Any

from postroom.operations.deployment.differences import find_differences
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
