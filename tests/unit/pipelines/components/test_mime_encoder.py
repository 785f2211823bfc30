"""The encoders for MIME and S/MIME: what they write is read by the decoders and by other programs."""

from __future__ import annotations

import email
import email.policy
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import secret
from postroom.errors import PipelineFailure
from postroom.message import Bytes, Message, Part
from postroom.pipelines import Receive, Send, components
from postroom.pipelines.components.smime import thumbprint
from postroom.system_properties import BTS
from tests.support.certificates import NOW, Identity, issue
from tests.support.round_trip import receive_messages, send

ORDER = b'{"region": "EU"}'
PICTURE = bytes(range(256))

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30).filter(
    lambda name: name == name.strip() and name.strip("<> ") == name
)
PARTS = st.lists(
    st.builds(
        Part,
        name=NAMES,
        body=st.builds(Bytes, st.binary(max_size=300)),
        content_type=st.sampled_from(["application/json", "text/plain", "image/png"]),
        charset=st.sampled_from([None, "utf-8", "windows-1252"]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda part: part.name,
)


def describe(message: Message) -> list[tuple[str, bytes, str, str | None]]:
    return [(part.name, part.data, part.content_type, part.charset) for part in message.parts]


@given(parts=PARTS, data=st.data())
def test_all_parts_of_a_message_come_back(parts: list[Part], data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(parts)).name
    message = Message(parts=tuple(parts), body_part_name=body)
    sent = send(Send(encode=[components.MimeEncoder()]), message)
    assert len(sent.parts) == 1
    decoded = components.Mime().decode(sent)
    assert describe(decoded) == describe(message)
    assert decoded.body_part_name == body


def test_a_standard_library_reads_the_message() -> None:
    message = Message(
        parts=(
            Part(body=Bytes(ORDER), content_type="application/json", charset="utf-8"),
            Part(name='a "map" é.png', body=Bytes(PICTURE), content_type="image/png; size=1"),
            Part(name="odd", body=Bytes(b"x"), content_type="not a type\r\nX-Header: 1", charset="bad charset"),
        )
    )
    sent = send(Send(encode=[components.MimeEncoder()]), message)
    assert sent.body is not None
    assert sent.body.content_type == "message/rfc822"
    read = email.message_from_bytes(sent.data, policy=email.policy.default)
    order, picture, odd = read.iter_parts()
    assert order.get_payload(decode=True) == ORDER
    assert (picture.get_filename(), picture.get_payload(decode=True)) == ('a "map" é.png', PICTURE)
    assert (odd.get_content_type(), odd["X-Header"]) == ("application/octet-stream", None)


def test_a_message_that_is_too_large_for_memory_is_refused() -> None:
    with pytest.raises(PipelineFailure, match="The parts of the message have 16 bytes"):
        Send(encode=[components.MimeEncoder(max_size=15)]).run(Message.of(ORDER))


class Keys:
    def __init__(self, folder: Path) -> None:
        self.authority = issue("Authority", is_authority=True, elliptic=True)
        self.us = issue("We", issuer=self.authority, elliptic=True)
        self.them = issue("They", issuer=self.authority)
        self.certificate, self.key = self.us.write(folder, "us", password="secret")
        self.recipients, self.their_key = self.them.write(folder, "them")
        self.trusted = str(folder / "trusted.pem")
        Path(self.trusted).write_bytes(self.authority.pem)
        self.folder = folder

    def write(self, identity: Identity, name: str) -> tuple[str, str]:
        return identity.write(self.folder, name)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY_PASSWORD", "secret")


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("encrypts", [True, False])
@pytest.mark.parametrize("clear", [True, False])
def test_a_signed_or_encrypted_message_is_read_by_its_receiver(
    keys: Keys, signs: bool, encrypts: bool, clear: bool
) -> None:
    if not (signs or encrypts):
        return
    encoder = components.SMimeEncoder(
        certificate=keys.certificate if signs else None,
        key=keys.key if signs else None,
        password=secret(env="OUR_KEY_PASSWORD"),
        recipients=keys.recipients if encrypts else None,
        clear=clear,
    )
    decoder = components.SMime(
        certificate=keys.recipients,
        key=keys.their_key,
        trusted=keys.trusted,
        must_be_signed=signs,
        must_be_encrypted=encrypts,
    )
    assert encoder.problems() == decoder.problems() == []
    message = Message(
        parts=(
            Part(body=Bytes(ORDER), content_type="application/json"),
            Part(name="map.png", body=Bytes(PICTURE), content_type="image/png"),
        )
    )
    sent = send(Send(encode=[encoder]), message)
    assert (ORDER in sent.data) is False
    decoded = decoder.decode_at(sent, NOW)
    if signs:
        assert decoded.context[BTS.SignatureCertificate] == thumbprint(keys.us.certificate)
    assert describe(components.Mime().decode(decoded)) == describe(message)


def test_a_receive_pipeline_reads_an_encrypted_message(keys: Keys) -> None:
    encoder = components.SMimeEncoder(recipients=keys.recipients)
    smime = components.SMime(certificate=keys.recipients, key=keys.their_key, must_be_signed=False)
    sent = send(Send(encode=[encoder]), Message.of(ORDER))
    [message] = receive_messages(Receive(decode=[smime, components.Mime()]), sent)
    assert message.data == ORDER


@pytest.mark.parametrize("clear", [True, False])
def test_openssl_verifies_and_decrypts_the_message(keys: Keys, clear: bool, tmp_path: Path) -> None:
    encoder = components.SMimeEncoder(
        certificate=keys.certificate,
        key=keys.key,
        password=secret(env="OUR_KEY_PASSWORD"),
        recipients=keys.recipients,
        clear=clear,
    )
    (tmp_path / "sent").write_bytes(send(Send(encode=[encoder]), Message.of(ORDER)).data)
    decrypt = ["openssl", "cms", "-decrypt", "-inkey", keys.their_key, "-recip", keys.recipients]
    subprocess.run([*decrypt, "-in", tmp_path / "sent", "-out", tmp_path / "signed"], check=True)
    moment = str(int(NOW.timestamp()))
    verify = ["openssl", "cms", "-verify", "-CAfile", keys.trusted, "-attime", moment, "-in", str(tmp_path / "signed")]
    subprocess.run([*verify, "-out", tmp_path / "content"], check=True, capture_output=True)
    read = email.message_from_bytes((tmp_path / "content").read_bytes(), policy=email.policy.default)
    [part] = read.iter_parts()
    assert part.get_payload(decode=True) == ORDER


def test_wrong_keys_are_failures_that_say_what_to_do(keys: Keys, tmp_path: Path) -> None:
    _, other = keys.write(issue("Other", elliptic=True), "other")
    curve, _ = keys.write(issue("Curve", elliptic=True), "curve")
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    cases = {
        "is not the key of the certificate": components.SMimeEncoder(certificate=keys.certificate, key=other),
        "missing.pem cannot be used": components.SMimeEncoder(recipients=str(tmp_path / "missing.pem")),
        "empty.pem cannot be used": components.SMimeEncoder(recipients=str(empty)),
        "curve.pem cannot be used": components.SMimeEncoder(recipients=curve),
        "us.key cannot be used": components.SMimeEncoder(certificate=keys.certificate, key=keys.key),
    }
    for reason, encoder in cases.items():
        with pytest.raises(PipelineFailure, match=reason) as caught:
            Send(encode=[encoder]).run(Message.of(ORDER))
        assert not caught.value.can_retry
        assert "secret" not in str(caught.value)


def test_wrong_settings_are_problems() -> None:
    assert components.SMimeEncoder().problems() == [
        "Set certificate and key to sign messages, recipients to encrypt them, or all of them."
    ]
    assert components.SMimeEncoder(certificate="us.pem", max_size=0).problems() == [
        "certificate is 'us.pem'; write the absolute path on the machines where the pipelines run.",
        "A signature needs both certificate and key.",
        "max_size is 0, but must be at least 1.",
    ]
