"""What written files are called."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.adapters.file.names import DEFAULT_NAME, find_template_problems, format_file_name, is_unique, to_safe_name
from postroom.message import Message
from postroom.properties import Property
from postroom.system_properties import BTS, FILE

NOW = datetime(1997, 7, 12, 10, 35, 23, 456_000, tzinfo=UTC)


def message(received: str | None = None, **bts: str) -> Message:
    written: dict[Property, object] = {getattr(BTS, name): value for name, value in bts.items()}
    return Message.of(b"", written={**written, FILE.ReceivedFileName: received})


@pytest.fixture
def nairobi() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "EAT-3"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("%datetime%.xml", "1997-07-12T103523.xml"),
        ("%datetime_bts2000%", "199707121035234"),
        ("%time%", "103523"),
        ("%SourceFileName%", "order 7.json"),
        ("x-%SourceFileName%.bak", "x-order 7.json.bak"),
        ("%SourceParty%-%DestinationParty%", "ACME-Contoso"),
        ("100%-%time%", "100%-103523"),
        ("%DestinationPartyQualifier%", "%DestinationPartyQualifier%"),
    ],
)
def test_macros_become_their_values(template: str, name: str) -> None:
    sent = message("/data/in/order 7.json", SourceParty="ACME", DestinationParty="Contoso")
    assert find_template_problems(template) == []
    assert format_file_name(template, sent, NOW) == name


@pytest.mark.usefixtures("nairobi")
def test_local_times_carry_their_offset() -> None:
    assert format_file_name("%datetime.tz%", message(), NOW) == "1997-07-12T133523+300"
    assert format_file_name("%time.tz%", message(), NOW) == "133523+300"


@pytest.mark.parametrize(
    ("received", "extension"),
    [("/in/a.json", ".json"), ("C:\\in\\a.tar.gz", ".gz"), ("/in.d/plain", ""), ("/in/.hidden", ""), (None, "")],
)
def test_the_default_name_is_the_message_id_and_the_source_extension(received: str | None, extension: str) -> None:
    sent = message(received)
    assert format_file_name(DEFAULT_NAME, sent, NOW) == f"{sent.message_id}{extension}"


def test_a_macro_without_a_value_stays_as_it_is() -> None:
    assert format_file_name("%SourceFileName%", message(), NOW) == "%SourceFileName%"


def test_a_value_is_not_searched_for_macros() -> None:
    assert format_file_name("%SourceFileName%", message("/in/%time%"), NOW) == "%time%"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("%MessageId%", "%MessageId%"),
        ("a/b", "'/'"),
        ("..\\b", "'\\\\'"),
        ("a\0b", "'\\x00'"),
        (".hidden", "hidden"),
        ("what?.txt", "'?'"),
    ],
)
def test_an_invalid_template_is_rejected(template: str, said: str) -> None:
    assert any(said in problem for problem in find_template_problems(template))


def test_only_a_name_with_the_message_id_is_unique() -> None:
    assert is_unique(DEFAULT_NAME)
    assert not is_unique("%SourceFileName%-%datetime%")


@given(st.text() | st.text(alphabet="./\\ ~:cCoOnN1%-") | st.text(alphabet="é.", min_size=200))
@example("..")
@example("../../etc/passwd")
@example("/etc/passwd")
@example("a\0b")
@example("con.txt")
@example("x" * 300 + ".json")
@example("")
@example("~root")
def test_no_value_leads_out_of_the_folder(value: str) -> None:
    name = to_safe_name(value)
    folder = Path("/srv/out")
    assert (folder / name).parent == folder
    assert Path(os.path.normpath(folder / name)) == folder / name
    assert not name.startswith(".")
    assert 0 < len(name.encode()) <= 255
    assert not re.search(r"[\x00-\x1f\x7f/\\]", name)
    assert to_safe_name(name) == name


@given(st.uuids(), st.uuids(), st.text(alphabet="abc", min_size=300, max_size=400))
def test_long_names_stay_different(one: uuid.UUID, other: uuid.UUID, long: str) -> None:
    names = {to_safe_name(f"{long}{value}.json") for value in (one, other)}
    assert len(names) == len({one, other})
    assert all(name.endswith(".json") for name in names)


@pytest.mark.parametrize("reserved", ["CON", "nul.txt", "Lpt1", "clock$"])
def test_device_names_are_not_used(reserved: str) -> None:
    assert to_safe_name(reserved) == f"_{reserved}"
