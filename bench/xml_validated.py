"""XML documents of 2 KB with XSD validation and three promotions, from files to committed queue rows on local[2].

The baseline is one process that only parses and validates the same documents with lxml.

    python -m bench.xml_validated
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lxml import etree

from bench.messagebox import REGIONS, Priority, Region, Total, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from bench.streaming import stream
from postroom import adapters, pipelines
from postroom.messagebox.connection import Login
from postroom.pipelines import components
from postroom.spark.receive.stream import start_stream
from tests.support.spark_session import open_session

_FILES, _DOCUMENTS = 16, 2_000
_LINES = 15
_NAMESPACE = "http://example.org/orders"
_XSD = f"""\
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{_NAMESPACE}" elementFormDefault="qualified">
  <xs:element name="Order"><xs:complexType><xs:sequence>
    <xs:element name="Region" type="xs:string"/>
    <xs:element name="Total" type="xs:decimal"/>
    <xs:element name="Priority" type="xs:int"/>
    <xs:element name="Line" maxOccurs="unbounded"><xs:complexType>
      <xs:sequence>
        <xs:element name="Article" type="xs:string"/>
        <xs:element name="Quantity" type="xs:int"/>
        <xs:element name="Price" type="xs:decimal"/>
        <xs:element name="Due" type="xs:date"/>
      </xs:sequence>
      <xs:attribute name="number" type="xs:int" use="required"/>
    </xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>
"""
_PROMOTE = {Region: "/o:Order/o:Region", Total: "/o:Order/o:Total", Priority: "/o:Order/o:Priority"}


def measure() -> Result:
    """Return documents/s to queue rows over documents/s of the bare process."""
    documents = [_make_order(number) for number in range(_FILES * _DOCUMENTS)]
    envelopes = [_make_envelope(documents[at : at + _DOCUMENTS]) for at in range(0, len(documents), _DOCUMENTS)]
    pipeline = pipelines.Receive(
        disassemble=[pipelines.Xml(promote=_PROMOTE, namespaces={"o": _NAMESPACE}, split="/o:Orders/o:Order")],
        validate=[components.Xsd("order.xsd")],
    )
    with measured_box(adapter=adapters.File("in", settle=0.05), pipeline=_pack_pipeline(pipeline)) as box:
        (box.home / "documents.xml").write_bytes(b"\n".join(documents))
        (box.home / "order.xsd").write_text(_XSD)
        with open_session(box.home, master="local[2]") as session:
            login = Login(url=box.url, user=box.host.role_name)
            query = start_stream(session, box.location, login=login, home=box.home)
            try:
                pairs = measure_alternately(
                    lambda: stream(box, envelopes, len(documents)), lambda: _measure_bare_process(box.home), rounds=9
                )
            finally:
                query.stop()
    ratio, spread = compute_ratio(pairs)
    ours, bare = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
    return Result(
        name="XML of 2 KB with XSD validation and three promotions by XPath on local[2], to committed queue rows,"
        " against one process that only parses and validates with lxml",
        group="C",
        measured=ratio,
        bar=0.8,
        spread=spread,
        detail=f"{ours:,.0f} against {bare:,.0f} documents/s; envelopes of {_DOCUMENTS:,}",
    )


def _pack_pipeline(pipeline: pipelines.Receive) -> pipelines.Receive:
    """Return the pipeline with its schema, as `apply` stores it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "order.xsd").write_text(_XSD)
        return pipeline.pack(Path(folder))


def _make_order(number: int) -> bytes:
    rng = random.Random(number)
    lines = "".join(
        f'<Line number="{line}"><Article>Article {rng.randrange(10**9)}</Article><Quantity>{rng.randrange(1, 99)}'
        f"</Quantity><Price>{rng.randrange(10**5) / 100:.2f}</Price><Due>2026-05-{line + 1:02}</Due></Line>"
        for line in range(_LINES)
    )
    head = f"<Region>R{rng.randrange(REGIONS)}</Region><Total>{rng.randrange(10**7) / 100:.2f}</Total>"
    return f'<Order xmlns="{_NAMESPACE}">{head}<Priority>{rng.randrange(9)}</Priority>{lines}</Order>'.encode()


def _make_envelope(documents: Sequence[bytes]) -> bytes:
    return b'<Orders xmlns="%s">%s</Orders>' % (_NAMESPACE.encode(), b"".join(documents))


def _measure_bare_process(folder: Path) -> float:
    """Return documents/s that the bare process prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.xml_validated", str(folder)], capture_output=True, check=True, text=True
    )
    return float(done.stdout)


def _measure_validation(folder: Path) -> float:
    documents = (folder / "documents.xml").read_bytes().split(b"\n")
    schema = etree.XMLSchema(etree.parse(folder / "order.xsd"))
    valid: list[bool] = []
    elapsed = seconds(lambda: valid.extend(schema.validate(etree.fromstring(document)) for document in documents))
    assert all(valid)
    return len(documents) / elapsed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(f"{_measure_validation(Path(sys.argv[1]))}\n")
    else:
        sys.stdout.write(f"{measure()}\n")
