from __future__ import annotations

import email.message
import email.policy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import Bytes, Context, Message
from postroom.pipelines import JsonLines, Receive, components
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.system_properties import HTTP

ORDERS = b'{"number": 1}\n{"number": 2}\n'
PICTURE = bytes(range(256)) * 5


def mail(*, orders: bytes = ORDERS, picture: bytes = PICTURE) -> email.message.EmailMessage:
    made = email.message.EmailMessage(policy=email.policy.SMTP)
    made["Subject"] = "Orders"
    made.set_content("See the attachments.\r\n", charset="iso-8859-1")
    made.add_attachment(orders, maintype="application", subtype="json", filename="orders.json")
    made.add_attachment(picture, maintype="image", subtype="png", filename="map.png")
    return made


def decode(mime: components.Mime, content: bytes, context: Context = Context()) -> Message:  # noqa: B008 - immutable
    assert mime.problems() == []
    message = Message.of(content)
    return mime.decode(message.with_context(context))


def test_parts_keep_their_order_names_and_content() -> None:
    message = decode(components.Mime(), mail().as_bytes())
    assert [(part.name, part.content_type, part.charset) for part in message.parts] == [
        ("body", "text/plain", "iso-8859-1"),
        ("orders.json", "application/json", None),
        ("map.png", "image/png", None),
    ]
    assert message.body_part_name == "body"
    assert [part.data for part in message.parts] == [b"See the attachments.\r\n", ORDERS, PICTURE]


@pytest.mark.parametrize("mime", [components.Mime(body_type="application/*"), components.Mime(body_index=2)])
def test_the_body_part_may_be_at_any_position(mime: components.Mime) -> None:
    message = decode(mime, mail().as_bytes())
    assert message.body_part_name == "orders.json"
    assert [part.name for part in message.parts] == ["part-1", "orders.json", "map.png"]


@pytest.mark.parametrize("mark", [b"Content-Description: body", b"Content-ID: <two>"])
def test_the_sender_can_name_the_body_part(mark: bytes) -> None:
    content = (
        b'MIME-Version: 1.0\r\nContent-Type: multipart/related; start="<two>"; boundary=b\r\n\r\n'
        b"--b\r\n\r\none\r\n--b\r\n%s\r\n\r\ntwo\r\n--b--\r\n" % mark
    )
    message = decode(components.Mime(), content)
    assert message.data == b"two"
    assert message.parts.index(message.body) == 1


def test_headers_are_read_from_the_http_request() -> None:
    context = Context().write(HTTP.ContentType, "multipart/mixed; boundary=b")
    message = decode(components.Mime(), b"--b\r\n\r\none\r\n--b\r\n\r\ntwo\r\n--b--", context)
    assert [part.data for part in message.parts] == [b"one", b"two"]
    assert message.context == context


def test_nested_parts_and_attached_mails_are_divided() -> None:
    inner = mail()
    outer = email.message.EmailMessage(policy=email.policy.SMTP)
    outer.set_content("Forwarded.")
    outer.add_attachment(inner)
    nested = email.message.EmailMessage(policy=email.policy.SMTP)
    nested.set_content("plain")
    nested.add_alternative("<p>html</p>", subtype="html")
    outer.attach(nested)
    message = decode(components.Mime(), outer.as_bytes())
    assert [part.content_type for part in message.parts] == [
        "text/plain",
        "message/rfc822",
        "text/plain",
        "text/html",
    ]
    assert decode(components.Mime(), message.parts[1].data).parts[2].data == PICTURE


def test_one_part_alone_is_decoded() -> None:
    message = decode(components.Mime(), b"Content-Type: text/csv\nContent-Transfer-Encoding: base64\n\nYSxiCg==\n")
    assert (message.data, len(message.parts), message.body_part_name) == (b"a,b\n", 1, "body")


def test_other_content_passes_only_with_allow_non_mime() -> None:
    with pytest.raises(PipelineFailure, match="not a MIME message"):
        decode(components.Mime(), ORDERS)
    assert decode(components.Mime(allow_non_mime=True), ORDERS).data == ORDERS


_MAIL_HEAD = b"Content-Type: message/rfc822\n\n"
_HEAD = b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"


@pytest.mark.parametrize(
    ("mime", "content", "reason"),
    [
        (components.Mime(), mail().as_bytes()[:-60], "CloseBoundaryNotFound"),
        (components.Mime(), _HEAD + b"nothing", "StartBoundaryNotFound"),
        (components.Mime(), b"Content-Type: multipart/mixed\n\n--b\n\n1\n--b--", "NoBoundaryInMultipart"),
        (components.Mime(), b"Content-Transfer-Encoding: base64\nContent-Type: a/b\n\nYSx%iCg=\n", "InvalidBase64"),
        (components.Mime(), _MAIL_HEAD + b"Content-Type: multipart/x; x=b\nX*\xa0\xf5--b--", "UnicodeEncodeError"),
        (components.Mime(), _MAIL_HEAD + b"X: a\x1cType: b\n\nbody", "HeaderParseError"),
        (components.Mime(max_size=100), mail().as_bytes(), "maximum of this pipeline is 100"),
        (components.Mime(max_parts=2), mail().as_bytes(), "The message has 3 parts."),
        (components.Mime(body_index=4), mail().as_bytes(), "It has 3 parts, and body_index is 4."),
        (components.Mime(body_type="text/xml"), mail().as_bytes(), "No part has a content type that matches text/xml."),
    ],
)
def test_invalid_content_is_rejected(mime: components.Mime, content: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure) as failure:
        decode(mime, content)
    assert reason in str(failure.value)


def nested(depth: int) -> bytes:
    if not depth:
        return b"Content-Type: text/plain\r\n\r\ndeep"
    mark = b"b%d" % depth
    return b"Content-Type: multipart/mixed; boundary=%s\r\n\r\n--%s\r\n%s\r\n--%s--\r\n" % (
        mark,
        mark,
        nested(depth - 1),
        mark,
    )


def test_nesting_has_a_limit() -> None:
    assert decode(components.Mime(), nested(8)).data == b"deep"
    with pytest.raises(PipelineFailure, match="more than 8 levels of nested parts"):
        decode(components.Mime(), nested(9))
    # Deeper than the library can parse.
    opened = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(2_000))
    with pytest.raises(PipelineFailure, match="more than 8 levels of nested parts"):
        decode(components.Mime(), opened + b"Content-Type: text/plain\r\n\r\ndeep")
    with pytest.raises(PipelineFailure, match="Mime: "):
        list(Receive(decode=[components.Mime()]).disassemble(Bytes(nested(600))))


def test_equal_or_unsafe_part_names_are_made_unique() -> None:
    made = email.message.EmailMessage(policy=email.policy.SMTP)
    made.set_content("text")
    for _ in range(2):
        made.add_attachment(b"1", maintype="a", subtype="b", filename="../../etc/x")
    names = [part.name for part in decode(components.Mime(), made.as_bytes()).parts]
    assert names == ["body", "../../etc/x", "../../etc/x-3"]


def test_problems() -> None:
    mime = components.Mime(body_index=0, body_type="a/b", max_parts=5000, max_size=0)
    assert len(mime.problems()) == 4


def test_every_document_has_the_other_parts() -> None:
    pipeline = Receive(decode=[components.Mime(body_index=2)], disassemble=[JsonLines()])
    [batch] = pipeline.disassemble(Bytes(mail().as_bytes()))
    assert batch.decoded is not None
    seen = MessageBatch(batch.messages, batch.decoded)
    assert [message.data for message in seen] == ORDERS.splitlines()
    for message in seen:
        assert [part.name for part in message.parts] == ["part-1", "orders.json", "map.png"]
        assert message.body_part_name == "orders.json"
        assert message.parts[2].data == PICTURE


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_attachments_are_extracted(contents: list[bytes]) -> None:
    made = email.message.EmailMessage(policy=email.policy.SMTP)
    made.make_mixed()
    for content in contents:
        made.add_attachment(content, maintype="application", subtype="octet-stream")
    made["MIME-Version"] = "1.0"
    assert [part.data for part in decode(components.Mime(), made.as_bytes()).parts] == contents
