"""The bad rows of a bulk file are saved as a file, and resumed with its corrected lines (RCV-15)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.agent.streaming.row_units import RowUnit, receive_rows
from postroom.cli.main import main
from postroom.errors import StateError
from postroom.filters.columns import to_arrow_type
from postroom.message import Context
from postroom.messagebox.connection import connect
from postroom.messagebox.storage.receipts import Progress
from postroom.operations.bad_rows import ResumedRows, SavedRows, resume_bad_rows, save_bad_rows
from postroom.pipelines import Rows
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.bulk.task import SPLIT_START
from postroom.system_properties import BTS, FILE
from tests.support.box import PROMOTE, Box
from tests.support.bulk_location import add_bulk_location
from tests.support.changes import terminate
from tests.support.dequeue import handle_resumed

FILE_ID = uuid.UUID(int=99)
SOURCE = "/data/in/big.csv"


class Unlimited:
    def allows(self, *, bad: int, unroutable: int, rows: int) -> bool:
        return True


@pytest.fixture
def location(box: Box, tmp_path: Path) -> ReceiveLocation:
    box.add_port("Europe", "Region == 'EU'")
    options = {"header": True, "sep": ";", "encoding": "ISO-8859-1"}
    return add_bulk_location(box, tmp_path / "in", options=options)


def receive(box: Box, location: ReceiveLocation, start: int, *lines: str, file: uuid.UUID = FILE_ID) -> None:
    """Receive a split that consists of bad rows."""
    assert isinstance(location.pipeline, Rows)
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"{}"] * len(lines),
            **{f"value{n}": pa.nulls(len(lines), to_arrow_type(p.value_type)) for n, p in enumerate(PROMOTE)},
            "bad": list(lines),
            "nulls": [["total"]] * len(lines),
        }
    )
    context = Context().write(BTS.InterchangeID, str(file)).write(FILE.ReceivedFileName, SOURCE)
    unit = RowUnit(unit_id=uuid.uuid4(), context=context.write(SPLIT_START, start))
    with connect(box.url, user=box.host().role_name) as connection:
        receive_rows(
            Receiver(connection, RoutingTable()),
            location,
            location.pipeline,
            unit,
            [batch],
            progress=Progress(),
            bad_content_type="text/csv",
            limit=Unlimited(),
        )


def get_instance_id(box: Box, line: str) -> uuid.UUID:
    [found] = [row.instance_id for row in box.suspended_rows() if row.body == line.encode("iso-8859-1")]
    return found


def test_corrected_lines_are_resumed_as_the_rows_that_they_were_saved_from(
    box: Box, location: ReceiveLocation, tmp_path: Path
) -> None:
    receive(box, location, 4096, "3;EU;drei;1", "4;EU;vier;1")
    receive(box, location, 0, "1;EU;eins;1", "2;EU;zwölf;1")
    receive(box, location, 0, "9;EU;other file;1", file=uuid.UUID(int=98))
    bad = tmp_path / "bad.csv"
    saved = save_bad_rows(box.connection, get_instance_id(box, "4;EU;vier;1"), bad)
    assert saved == SavedRows(rows=4, source=SOURCE)
    assert bad.read_bytes().decode("iso-8859-1").splitlines() == [
        "id;region;total;priority",
        "1;EU;eins;1",
        "2;EU;zwölf;1",
        "3;EU;drei;1",
        "4;EU;vier;1",
    ]
    with pytest.raises(StateError, match="already exists"):
        save_bad_rows(box.connection, get_instance_id(box, "4;EU;vier;1"), bad)
    # Meanwhile one row is terminated, and another one is suspended.
    terminate(box.connection, get_instance_id(box, "3;EU;drei;1"))
    receive(box, location, 8192, "5;EU;fünf;1")

    lines = ["id;region;total;priority", "1;EU;eins;1", "2;EU;12;1", "3;EU;3;1", "4;EU;still bad;1"]
    bad.write_bytes("\r\n".join(lines).encode())
    assert resume_bad_rows(box.connection, bad) == ResumedRows(resumed=2, unchanged=1, not_suspended=1)
    published, failed = handle_resumed(box)
    assert [json.loads(message.data) for message in published] == [
        {"id": 2, "region": "EU", "total": 12.0, "priority": 1}
    ]
    assert [failure.why for failure in failed] == ["The column 'total' is decimal(12,2), but has 'still bad'."]
    # A second run finds that nothing is left to do.
    assert resume_bad_rows(box.connection, bad) == ResumedRows(resumed=0, unchanged=1, not_suspended=3)
    assert box.count("suspended") == 3, "1, 5 and the row of the other file"


def test_the_commands_save_and_resume_rows(
    box: Box, location: ReceiveLocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receive(box, location, 0, "1;EU;eins;1", "2;EU;zwei;1")
    bad, instance_id = tmp_path / "bad.csv", get_instance_id(box, "1;EU;eins;1")
    assert main(["--database", box.url, "instance", "save-rows", str(instance_id), str(bad)]) == 0
    assert f"{bad} has 2 bad rows of {SOURCE}." in capsys.readouterr().out
    bad.write_bytes(bad.read_bytes().replace(b"eins", b"1"))
    assert main(["--database", box.url, "instance", "resume-rows", str(bad)]) == 0
    assert capsys.readouterr().out.startswith(
        "One row resumed, 1 unchanged.\nThe host of the receive location publishes"
    )


@pytest.mark.parametrize("change", [b"6;EU;6;1\n", None])
def test_a_file_with_another_number_of_rows_is_rejected(
    box: Box, location: ReceiveLocation, tmp_path: Path, change: bytes | None
) -> None:
    receive(box, location, 0, "1;EU;eins;1", "2;EU;zwei;1")
    bad = tmp_path / "bad.csv"
    save_bad_rows(box.connection, get_instance_id(box, "1;EU;eins;1"), bad)
    lines = bad.read_bytes()
    bad.write_bytes(lines + change if change else lines.partition(b"1;EU;eins;1\n")[0])
    with pytest.raises(StateError, match="but 2 were saved"):
        resume_bad_rows(box.connection, bad)
    assert box.count("suspended") == 2
    Path(f"{bad}.instances").unlink()
    with pytest.raises(StateError, match="Both files"):
        resume_bad_rows(box.connection, bad)


def test_rows_that_are_not_lines_are_not_saved(box: Box, location: ReceiveLocation, tmp_path: Path) -> None:
    receive(box, location, 0, '1;"E\nU";eins;1')
    with pytest.raises(StateError, match="one bad row with line ends"):
        save_bad_rows(box.connection, get_instance_id(box, '1;"E\nU";eins;1'), tmp_path / "bad.csv")
    xml = add_bulk_location(box, tmp_path / "xml", format="xml", name="xml", options={"rowTag": "order"})
    receive(box, xml, 0, "<order/>", file=uuid.UUID(int=1))
    with pytest.raises(StateError, match="not corrected as lines"):
        save_bad_rows(box.connection, get_instance_id(box, "<order/>"), tmp_path / "bad.xml")
    assert list(tmp_path.glob("bad*")) == []
