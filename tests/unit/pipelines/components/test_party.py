from __future__ import annotations

import secrets

import pytest

from postroom.message import Bytes, Context, Message
from postroom.pipelines import Receive, components, load_pipeline
from postroom.properties import Property
from postroom.system_properties import BTS, HTTP

KEY = secrets.token_urlsafe(32)
THUMBPRINT = "3f" * 32
SentKey = Property("Partners.Key", str)

BOTH = Receive(
    resolve_party=[
        components.PartyByCertificate({"3F:" * 31 + "3F": "Acme"}),
        components.PartyByKey({components.key_hash(KEY): "Initech"}),
    ]
)


def headers(*lines: str) -> Context:
    return Context().write(HTTP.InboundHttpHeaders, "\r\n".join(["host: here", *lines]))


def party_of(context: Context, pipeline: Receive = BOTH) -> str | None:
    assert pipeline.problems() == []
    stored = load_pipeline(pipeline.model_dump(mode="json"))
    [batch] = stored.disassemble(Bytes(b"order"), context=context)
    [party] = batch.messages[BTS.OriginatorPID.key].to_pylist()
    return None if party is None else str(party)


def hashed(key: str) -> str:
    return f"x-api-key: sha256:{components.key_hash(key)}"


def test_the_certificate_takes_precedence_over_the_key() -> None:
    signed = headers(hashed(KEY)).write(BTS.SignatureCertificate, THUMBPRINT)
    assert party_of(signed) == "Acme"
    assert party_of(signed.write(BTS.SignatureCertificate, "00" * 32)) == "Initech"


@pytest.mark.parametrize(
    ("context", "party"),
    [
        (headers(hashed(KEY)), "Initech"),
        (headers(hashed("another")), None),
        (headers(f"x-api-key: {KEY}"), None),
        (headers(hashed(KEY), hashed("another")), None),
        (headers(f"x-other: sha256:{components.key_hash(KEY)}"), None),
        (headers(), None),
        (Context(), None),
        (Context().write(BTS.SignatureCertificate, ""), None),
    ],
)
def test_known_keys_and_certificates_are_resolved(context: Context, party: str | None) -> None:
    assert party_of(context) == party


def test_a_key_is_read_from_a_property() -> None:
    pipeline = Receive(
        resolve_party=[components.PartyByKey({components.key_hash(KEY): "Acme"}, property="Partners.Key")]
    )
    assert party_of(Context().write(SentKey, KEY), pipeline) == "Acme"
    assert party_of(Context().write(SentKey, components.key_hash(KEY)), pipeline) is None
    assert party_of(headers(hashed(KEY)), pipeline) is None


def test_the_key_itself_is_not_in_the_definition() -> None:
    assert KEY not in str(BOTH.model_dump(mode="json"))


def test_problems() -> None:
    assert components.PartyByKey({}).problems() == ["There are no parties."]
    assert len(components.PartyByCertificate({"3f5c": " "}).problems()) == 2


def test_a_message_without_its_interchange_can_be_read() -> None:
    message = Message.of(b"", written={BTS.SignatureCertificate: THUMBPRINT})
    assert components.PartyByCertificate({THUMBPRINT: "Acme"}).resolve(message) == "Acme"
