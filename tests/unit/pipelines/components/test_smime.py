from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asn1crypto import cms
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroom import secret
from postroom.clock import system_clock
from postroom.errors import PipelineFailure, SecretUnavailable
from postroom.message import Bytes, Context, Message
from postroom.pipelines import Json, Receive
from postroom.pipelines.components import Mime, PartyByCertificate, SMime
from postroom.pipelines.components.smime import thumbprint
from postroom.system_properties import BTS, HTTP
from tests.support.certificates import NOW, Identity, issue

ORDER = b'Content-Type: application/json\r\n\r\n{"region": "EU"}\r\n'
DETACHED = pkcs7.PKCS7Options.DetachedSignature


@dataclass(frozen=True)
class People:
    authority: Identity
    sender: Identity
    us: Identity
    stranger: Identity
    folder: Path

    def smime(self, **settings: Any) -> SMime:
        component = SMime(
            **{
                "trusted": str(self.folder / "trusted.pem"),
                "certificate": str(self.folder / "us.pem"),
                "key": str(self.folder / "us.key"),
                **settings,
            }
        )
        assert component.problems() == []
        return component


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    folder = tmp_path_factory.mktemp("keys")
    authority = issue("Authority", is_authority=True, elliptic=True)
    us = issue("We", issuer=authority)
    us.write(folder, "us")
    (folder / "trusted.pem").write_bytes(authority.pem)
    return People(
        authority=authority,
        sender=issue("Acme", issuer=authority, elliptic=True),
        us=us,
        stranger=issue("Stranger", elliptic=True),
        folder=folder,
    )


def signed(
    signer: Identity,
    content: bytes = ORDER,
    *,
    encoding: Encoding = Encoding.SMIME,
    options: list[pkcs7.PKCS7Options] | None = None,
    pss: bool = False,
    others: list[Identity] | None = None,
) -> bytes:
    chosen = padding.PSS(padding.MGF1(hashes.SHA256()), 32) if pss else None
    builder = pkcs7.PKCS7SignatureBuilder().set_data(content)
    builder = builder.add_signer(signer.certificate, signer.key, hashes.SHA256(), rsa_padding=chosen)
    for one in others or []:
        builder = builder.add_certificate(one.certificate)
    return builder.sign(encoding, [DETACHED] if options is None else options)


def opaque(der: bytes) -> bytes:
    head = b"MIME-Version: 1.0\r\nContent-Type: application/pkcs7-mime; smime-type=signed-data\r\n"
    return head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(der)


def encrypted(content: bytes, recipient: Identity) -> bytes:
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(content).add_recipient(recipient.certificate)
    return builder.encrypt(Encoding.SMIME, [pkcs7.PKCS7Options.Binary])


def decode(smime: SMime, content: bytes, context: Context = Context()) -> Message:  # noqa: B008 - immutable
    return smime.decode_at(Message.of(content).with_context(context), NOW)


def refused(smime: SMime, content: bytes) -> str:
    with pytest.raises(PipelineFailure) as failure:
        decode(smime, content)
    return str(failure.value)


def test_a_signature_is_removed_and_its_certificate_written_to_the_context(people: People) -> None:
    message = decode(people.smime(), signed(people.sender))
    assert message.context[BTS.SignatureCertificate] == thumbprint(people.sender.certificate)
    assert not message.context.is_promoted(BTS.SignatureCertificate)
    assert message.context[BTS.OriginatorSID] == "CN=Acme"
    assert Mime().decode(message).data.strip() == b'{"region": "EU"}'


def test_opaque_signatures_and_other_keys_are_verified(people: People) -> None:
    rsa = issue("Acme", issuer=people.authority)
    for pss in (False, True):
        der = signed(rsa, encoding=Encoding.DER, options=[], pss=pss)
        assert decode(people.smime(), opaque(der)).data == ORDER


def test_a_signed_and_then_encrypted_message_is_verified(people: People) -> None:
    message = decode(people.smime(must_be_encrypted=True), encrypted(signed(people.sender), people.us))
    assert message.context[BTS.SignatureCertificate] == thumbprint(people.sender.certificate)
    assert Mime().decode(message).data.strip() == b'{"region": "EU"}'


def test_an_encrypted_message_without_a_signature_is_decrypted(people: People) -> None:
    message = decode(people.smime(must_be_signed=False), encrypted(ORDER, people.us))
    assert message.data == ORDER
    assert BTS.SignatureCertificate not in message.context


def test_an_encrypted_http_request_is_decrypted(people: People) -> None:
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(ORDER).add_recipient(people.us.certificate)
    der = builder.encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])
    context = Context().write(HTTP.ContentType, "application/pkcs7-mime; smime-type=enveloped-data")
    message = decode(people.smime(must_be_signed=False), der, context)
    assert Mime().decode(message).data.strip() == b'{"region": "EU"}'


def test_a_certificate_of_an_intermediate_authority_is_trusted(people: People) -> None:
    middle = issue("Middle", issuer=people.authority, is_authority=True, elliptic=True)
    leaf = issue("Acme", issuer=middle, elliptic=True)
    assert "not trusted" in refused(people.smime(), signed(leaf))
    message = decode(people.smime(), signed(leaf, others=[middle]))
    assert message.context[BTS.SignatureCertificate] == thumbprint(leaf.certificate)


def test_lf_line_ends_are_verified_as_cr_lf(people: People) -> None:
    content = signed(people.sender).replace(b"\r\n", b"\n")
    assert decode(people.smime(), content).context[BTS.SignatureCertificate]


@pytest.mark.parametrize("detached", [True, False])
def test_changed_content_is_rejected(people: People, detached: bool) -> None:
    if detached:
        content = signed(people.sender).replace(b'"EU"', b'"US"')
    else:
        der = signed(people.sender, encoding=Encoding.DER, options=[])
        content = opaque(der.replace(b'"EU"', b'"US"'))
    assert "The content does not match the signature." in refused(people.smime(), content)


def changed(der: bytes, change: Any) -> bytes:
    info = cms.ContentInfo.load(der)
    change(info["content"])
    return opaque(info.dump(force=True))


def test_a_changed_signature_is_rejected(people: People) -> None:
    der = signed(people.sender, encoding=Encoding.DER, options=[])
    other = cms.ContentInfo.load(signed(people.stranger, encoding=Encoding.DER, options=[]))["content"]

    def with_other_signature(data: Any) -> None:
        data["signer_infos"][0]["signature"] = other["signer_infos"][0]["signature"].native

    def with_another_name(data: Any) -> None:
        data["signer_infos"][0]["sid"] = other["signer_infos"][0]["sid"]

    def with_other_attributes(data: Any) -> None:
        [when] = [one for one in data["signer_infos"][0]["signed_attrs"] if one["type"].native == "signing_time"]
        when["values"] = [cms.Time({"utc_time": NOW})]

    def with_an_attribute_twice(data: Any) -> None:
        attributes = data["signer_infos"][0]["signed_attrs"]
        attributes.append(
            next(attribute for attribute in attributes if attribute["type"].native == "message_digest").copy()
        )

    def without_signers(data: Any) -> None:
        data["signer_infos"] = []

    assert "does not match the key of the certificate" in refused(people.smime(), changed(der, with_other_signature))
    assert "does not match the key of the certificate" in refused(people.smime(), changed(der, with_other_attributes))
    assert "message_digest must occur once" in refused(people.smime(), changed(der, with_an_attribute_twice))
    assert "does not contain the certificate" in refused(people.smime(), changed(der, with_another_name))
    assert "0 signers" in refused(people.smime(), changed(der, without_signers))


def test_a_signature_without_attributes_is_rejected(people: People) -> None:
    der = signed(people.sender, encoding=Encoding.DER, options=[pkcs7.PKCS7Options.NoAttributes])
    assert "It has no signed attributes." in refused(people.smime(), opaque(der))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"valid": (NOW - timedelta(days=9), NOW - timedelta(days=1))}, "not trusted"),
        ({"valid": (NOW + timedelta(days=1), NOW + timedelta(days=9))}, "not trusted"),
        ({"usage": ExtendedKeyUsageOID.SERVER_AUTH}, "its key is not for messages"),
        ({"may_sign": False}, "its key is not for signatures"),
    ],
)
def test_certificates_that_are_not_trusted_are_rejected(people: People, settings: dict[str, Any], reason: str) -> None:
    assert reason in refused(people.smime(), signed(issue("Acme", issuer=people.authority, elliptic=True, **settings)))


def test_an_unknown_certificate_with_a_trusted_name_is_not_trusted(people: People) -> None:
    assert "The certificate of the signer is not trusted." in refused(people.smime(), signed(people.stranger))
    imitated = issue("Authority", is_authority=True, elliptic=True)
    assert "not trusted" in refused(
        people.smime(), signed(issue("Acme", issuer=imitated, elliptic=True), others=[imitated])
    )
    # A certificate of the authority that is not an authority itself.
    made = issue("Made", issuer=people.sender, elliptic=True)
    assert "not trusted" in refused(people.smime(), signed(made, others=[people.sender]))


def test_a_certificate_whose_subject_cannot_be_read_is_not_trusted(people: People) -> None:
    der = signed(people.sender, encoding=Encoding.DER, options=[])
    damaged = der.replace(b"Acme", b"\xffcme")
    assert damaged != der
    assert "not trusted" in refused(people.smime(), opaque(damaged))


def test_a_certificate_may_be_trusted_itself(people: People, tmp_path: Path) -> None:
    (tmp_path / "trusted.pem").write_bytes(people.stranger.pem)
    smime = people.smime(trusted=str(tmp_path / "trusted.pem"))
    assert decode(smime, signed(people.stranger)).context[BTS.SignatureCertificate]
    assert "not trusted" in refused(smime, signed(people.sender))


@pytest.mark.parametrize(
    ("settings", "content", "reason"),
    [
        ({}, ORDER, "The message is not signed."),
        ({"must_be_signed": False, "must_be_encrypted": True}, ORDER, "The message is not encrypted."),
        ({"certificate": None, "key": None}, "encrypted", "encrypted, but the pipeline has no key"),
        ({"trusted": None, "must_be_signed": False}, "signed", "signed, but the pipeline has no trusted certificates"),
        ({"key": "/nowhere/us.key"}, "encrypted", "/nowhere/us.key cannot be used."),
        ({"trusted": "/nowhere/trusted.pem"}, "signed", "/nowhere/trusted.pem cannot be used."),
        ({"max_size": 10}, "signed", "maximum of this pipeline is 10"),
        ({}, "for others", "The message cannot be decrypted."),
        ({}, "twice", "The message is signed twice."),
        ({}, b"Content-Type: application/pkcs7-mime; smime-type=compressed-data\r\n\r\nx", "type compressed-data"),
        ({}, opaque(b"\x30\x03\x02\x01\x01"), "The signature cannot be verified."),
        ({}, b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n1\r\n--b--", "must have exactly two parts"),
    ],
)
def test_invalid_content_is_rejected(
    people: People, settings: dict[str, Any], content: bytes | str, reason: str
) -> None:
    made = {
        "signed": lambda: signed(people.sender),
        "encrypted": lambda: encrypted(ORDER, people.us),
        "for others": lambda: encrypted(ORDER, issue("Other")),
        "twice": lambda: opaque(signed(people.sender, signed(people.sender), encoding=Encoding.DER, options=[])),
    }
    assert reason in refused(people.smime(**settings), made[content]() if isinstance(content, str) else content)


def test_a_signer_in_the_incoming_context_is_removed(people: People) -> None:
    claimed = Context().write(BTS.SignatureCertificate, thumbprint(people.sender.certificate))
    message = decode(people.smime(must_be_signed=False), ORDER, claimed)
    assert BTS.SignatureCertificate not in message.context


def test_an_encrypted_key_is_read_with_its_password(
    people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = people.us.write(tmp_path, "us", password="secret")
    smime = people.smime(
        certificate=certificate, key=key, password=secret(env="OUR_KEY_PASSWORD"), must_be_signed=False
    )
    content = encrypted(ORDER, people.us)
    with pytest.raises(SecretUnavailable):
        decode(smime, content)
    monkeypatch.setenv("OUR_KEY_PASSWORD", "secret")
    assert decode(smime, content).data == ORDER


def test_the_signer_is_the_party(people: People) -> None:
    now = system_clock()
    today = (now - timedelta(days=1), now + timedelta(days=1))
    authority = issue("Authority of today", is_authority=True, elliptic=True, valid=today)
    sender = issue("Acme", issuer=authority, elliptic=True, valid=today)
    trusted, _ = authority.write(people.folder, "today")
    pipeline = Receive(
        decode=[people.smime(trusted=trusted), Mime()],
        disassemble=[Json()],
        resolve_party=[PartyByCertificate({thumbprint(sender.certificate): "Acme"})],
    )
    [batch] = pipeline.disassemble(Bytes(encrypted(signed(sender), people.us)))
    assert batch.messages[BTS.OriginatorPID.key].to_pylist() == ["Acme"]


def test_problems() -> None:
    assert len(SMime(certificate="us.pem", trusted="t.pem", must_be_encrypted=True, max_size=0).problems()) == 5
    assert SMime().problems() == ["must_be_signed is True, but trusted is not set; set it, or must_be_signed=False."]


def test_a_certificate_of_an_unknown_version_is_rejected(people: People) -> None:
    der = signed(people.sender, encoding=Encoding.DER, options=[])
    damaged = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x3e", 1)
    assert "It is damaged" in refused(people.smime(), opaque(damaged))
