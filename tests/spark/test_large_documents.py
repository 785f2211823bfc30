"""Documents that the pipeline creates are published even if they are larger than a row may be (LRG-02)."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.message import FRAGMENT_SIZE
from postroom.pipelines import Csv, Delimited, FlatFile, Receive, ReceivePipeline, Xml
from tests.spark.conftest import ClaimFiles, StartStream
from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.replayed_batch import store_claims
from tests.support.waiting import wait_until

PAD = "x" * (2 * FRAGMENT_SIZE)
ENVELOPES = Xml(split="/*/*")
RECORDS = FlatFile(message_type="urn:o#Order", record=Delimited(["id", "text"], delimiter=";", tag="O"))
#: Each file, and the documents in it. None of them stands in its file as it is published.
FILES = {
    "orders.xml": (
        f'<e xmlns="urn:o"><order>{PAD}</order><order>2</order><order>é{PAD}</order></e>',
        [f'<order xmlns="urn:o">{text}</order>' for text in (PAD, "2", f"é{PAD}")],
    ),
    "orders.txt": (
        f"O;1;{PAD}\nO;2;b\nO;3;{PAD}c\n",
        [
            f'<ns0:Order xmlns:ns0="urn:o"><id>{number}</id><text>{text}</text></ns0:Order>'
            for number, text in ((1, PAD), (2, "b"), (3, f"{PAD}c"))
        ],
    ),
    "orders.csv": (
        f"id,text\n1,{PAD}\n2,b\n3,{PAD}c\n",
        [f"id,text\n{number},{text}\n" for number, text in ((1, PAD), (2, "b"), (3, f"{PAD}c"))],
    ),
}


@pytest.mark.parametrize(
    ("pipeline", "names"),
    [(ENVELOPES, ["orders.xml"]), (Receive(disassemble=[ENVELOPES, RECORDS, Csv()]), list(FILES))],
    ids=["a format", "components"],
)
def test_large_documents_created_by_the_pipeline_are_published_once(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream, pipeline: ReceivePipeline, names: list[str]
) -> None:
    box.add_port("Everything", "BTS.ReceivePortName == 'dropIn'")
    location = add_file_location(box, folder, pipeline=pipeline)
    for name in names:
        (folder / name).write_text(FILES[name][0], encoding="utf-8")
    assert claim(location) == len(names)
    restore = store_claims(box)
    expected = sorted(document.encode() for name in names for document in FILES[name][1])
    for again in (False, True):
        if again:
            restore()
        query = start_stream(location)
        wait_until(lambda: box.count("file claims") == 0, what="the end of the batch")
        query.stop()
        assert query.exception() is None
        assert sorted(box.read_content(part.part_id) for part in box.parts()) == expected
        assert box.queued() == {"Everything": len(expected)}
        assert sum(part.body is None for part in box.parts()) == 2 * len(names)
        # Three fragments of each large document, each once.
        assert box.count("fragments") == 3 * 2 * len(names)
        assert (box.count("file claims"), box.suspended()) == (0, [])
    assert not any(path.is_file() for path in folder.rglob("*"))
