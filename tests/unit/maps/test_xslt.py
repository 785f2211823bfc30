"""XSLT maps: their results, and their isolation from files and the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import PipelineFailure
from postroom.maps.xslt import Stylesheet, stylesheet_problems
from postroom.message import Bytes
from postroom.temporary_bodies import MAX_IN_MEMORY, SpooledSlice


def sheet(template: str, *, top: str = "", root: str = "") -> bytes:
    return (
        f'<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" {root}>{top}'
        f'<xsl:template match="/">{template}</xsl:template></xsl:stylesheet>'
    ).encode()


def run(stylesheet: bytes, document: bytes, *, target: str = "invoice") -> bytes:
    assert stylesheet_problems("map.xslt", stylesheet) == []
    return b"".join(Stylesheet(stylesheet).run(Bytes(document), target=target).chunks())


def test_a_map_transforms_a_document() -> None:
    made = run(sheet('<invoice total="{/order/total}"/>'), b"<order><total>5</total></order>")
    assert b'<invoice total="5"/>' in made


def test_the_stylesheet_output_method_decides_the_content_type() -> None:
    text = sheet('<xsl:value-of select="/order/@id"/>', top='<xsl:output method="text"/>')
    assert run(text, b'<order id="7"/>') == b"7"
    latin = sheet("<invoice>\xe9</invoice>", top='<xsl:output encoding="iso-8859-1"/>')
    assert "\xe9".encode("latin-1") in run(latin, b"<a/>")


@pytest.mark.parametrize(
    ("stylesheet", "problem"),
    [
        (b"<a", "map.xslt: The document is not well-formed"),
        (b"<a/>", "not XSLT 1.0"),
        (b'<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>', "DOCTYPE"),
        (sheet("", top='<xsl:include href="other.xsl"/>'), "map.xslt:1: include is not allowed"),
        (sheet("", top='<xsl:import href="other.xsl"/>'), "import is not allowed"),
        (
            sheet("", root='xmlns:m="urn:schemas-microsoft-com:xslt"', top="<m:script>x</m:script>"),
            "script is not allowed",
        ),
        (sheet("", root='xmlns:e="urn:e" extension-element-prefixes="e"'), "extension elements"),
        (sheet('<a xmlns:e="urn:e" xsl:extension-element-prefixes="e"/>'), "extension elements"),
        (sheet("\n<xsl:value-of select='('/>"), "map.xslt:2: it is not XSLT 1.0"),
    ],
)
def test_an_invalid_stylesheet_is_reported(stylesheet: bytes, problem: str) -> None:
    assert problem in " ".join(stylesheet_problems("map.xslt", stylesheet))


def test_every_problem_is_reported() -> None:
    both = sheet("", top='<xsl:include href="a"/>\n<xsl:import href="b"/>')
    assert [text.partition(" is ")[0] for text in stylesheet_problems("m", both)] == ["m:1: include", "m:2: import"]


def test_a_map_reads_no_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text("<secret>kept</secret>", encoding="utf-8")
    with pytest.raises(PipelineFailure, match="The map failed"):
        run(sheet(f"<invoice><xsl:value-of select=\"document('{secret.as_uri()}')\"/></invoice>"), b"<a/>")


def test_a_map_writes_no_files(tmp_path: Path) -> None:
    there = tmp_path / "there.xml"
    writes = sheet(
        f'<xsl:document href="{there.as_uri()}"><x/></xsl:document><invoice/>', root='xmlns:x="urn:x"'
    ).replace(b'version="1.0"', b'version="1.1"')
    with pytest.raises(PipelineFailure):
        run(writes, b"<a/>")
    assert not there.exists()


def test_an_entity_of_a_document_is_not_read() -> None:
    with pytest.raises(PipelineFailure, match="DOCTYPE"):
        run(sheet("<invoice/>"), b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>')


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "result of the map is empty"),
        ('<xsl:message terminate="yes">there is no total</xsl:message>', "there is no total"),
        ("<order/>", "has the type 'order'"),
        ("<invoice/><invoice/>", "is not an XML document"),
        ("5<invoice/>", "is not an XML document"),
    ],
)
def test_a_map_whose_result_is_not_of_the_target_type_fails(template: str, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        run(sheet(template), b"<a/>")


def test_a_stylesheet_with_endless_recursion_fails() -> None:
    call = '<xsl:call-template name="t"/>'
    with pytest.raises(PipelineFailure):
        run(sheet(call, top=f'<xsl:template name="t">{call}</xsl:template>'), b"<a/>")


def test_a_large_result_is_spooled_to_disk() -> None:
    """LRG-04."""
    stylesheet = Stylesheet(sheet("<invoice><xsl:value-of select='/order'/></invoice>"))
    small, large = (
        stylesheet.run(Bytes(b"<order>%b</order>" % (b"x" * size)), target="invoice") for size in (1, MAX_IN_MEMORY)
    )
    assert (type(small), type(large)) == (Bytes, SpooledSlice)
    assert b"".join(large.chunks()).count(b"xx") == MAX_IN_MEMORY // 2
