"""Untrusted XML cannot read a file, reach the network or crash the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import PipelineFailure
from postroom.pipelines import Xml
from postroom.properties import Property
from tests.unit.pipelines.conftest import Receive

Region = Property("Orders.Region", str)


def _laughs(levels: int) -> str:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, levels))
    return f'<!ENTITY l0 "ha">{entities}'


BOMBS = {
    "in an element": f"<!DOCTYPE a [{_laughs(12)}]><a>&l11;</a>",
    "in an attribute": f"<!DOCTYPE a [{_laughs(12)}]><a b='&l11;'/>",
    "in a default": f"<!DOCTYPE a [{_laughs(12)}<!ATTLIST a b CDATA '&l11;'>]><a/>",
    "quadratic": f"<!DOCTYPE a [<!ENTITY x '{'x' * 50_000}'>]><a>{'&x;' * 10_000}</a>",
    "parameter entities": "<!DOCTYPE a [<!ENTITY % p '&#60;!ENTITY x \"y\">'> %p;]><a>&x;</a>",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_entities_are_not_expanded(receive: Receive, bomb: str) -> None:
    with pytest.raises(PipelineFailure, match="has a DOCTYPE, which is not allowed"):
        receive(Xml(promote={Region: "/a"}), bomb.encode())


@pytest.mark.parametrize("doctype", ["<!DOCTYPE a>", "<!DOCTYPE a []>", "<!DOCTYPE a [<!ELEMENT a ANY>]>"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_doctype_is_rejected(receive: Receive, doctype: str, encoding: str) -> None:
    with pytest.raises(PipelineFailure, match="has a DOCTYPE"):
        receive(Xml(), f"{doctype}<a/>".encode(encoding))


REFERENCES = {
    "a DTD": "<!DOCTYPE a SYSTEM '{}'><a/>",
    "an entity": "<!DOCTYPE a [<!ENTITY x SYSTEM '{}'>]><a>&x;</a>",
    "a parameter entity": "<!DOCTYPE a [<!ENTITY % x SYSTEM '{}'> %x;]><a>&leak;</a>",
}


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES.keys())
def test_no_other_file_is_read(receive: Receive, tmp_path: Path, reference: str) -> None:
    secret = tmp_path / "secret.dtd"
    secret.write_text("<!ENTITY leak 'the secret'>")
    with pytest.raises(PipelineFailure) as raised:
        receive(Xml(promote={Region: "/a"}), reference.format(secret.as_uri()).encode())
    assert "DOCTYPE" in raised.value.what
    assert "the secret" not in str(raised.value)


def test_depth_is_bounded(receive: Receive) -> None:
    with pytest.raises(PipelineFailure, match=r"nested too deeply\.\nIt has more than 256 levels of elements\.\n"):
        receive(Xml(), b"<a>" * 100_000 + b"</a>" * 100_000)


def test_the_size_of_a_text_is_bounded(receive: Receive) -> None:
    with pytest.raises(
        PipelineFailure, match=r"has a text, attribute or name that is too long, at line 1, column \d+\."
    ):
        receive(Xml(), b"<a>%s</a>" % (b"x" * 11_000_000))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            b"<a>\xff</a>",
            "The document is not well-formed XML at line 1, column 4.\nInvalid bytes in character encoding.",
        ),
        (b"<a>\n<b></a>", "XML at line 2, column 8.\nOpening and ending tag mismatch: b line 2 and a."),
    ],
)
def test_a_failure_has_one_position(receive: Receive, document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure) as raised:
        receive(Xml(), document)
    assert reason in str(raised.value)


@pytest.mark.parametrize("head", ["", "\n<!-- <!ELEMENT a> -->\n", "<?xml version='1.0'?><!-- a --><?p?> "])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_doctype_is_reported_before_other_errors(receive: Receive, head: str, encoding: str) -> None:
    with pytest.raises(PipelineFailure, match="has a DOCTYPE"):
        receive(Xml(), f"{head}<!DOCTYPE a []><a><b></a>".encode(encoding))
    with pytest.raises(PipelineFailure, match="not well-formed"):
        receive(Xml(), f"{head}<a><!-- <!DOCTYPE --><b></a>".encode(encoding))


def test_an_xpath_cannot_load_a_document(tmp_path: Path) -> None:
    other = tmp_path / "other.xml"
    other.write_text("<other/>")
    problems = Xml(promote={Region: f"document('{other.as_uri()}')/other"}).problems()
    assert len(problems) == 1
