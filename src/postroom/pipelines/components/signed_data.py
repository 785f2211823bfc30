"""The signature of a CMS message (RFC 5652): of what, by whom, and whether that one is to be believed.

asn1crypto reads the structure; cryptography verifies signatures, and the chain of certificates to those that are
trusted. More strict than the standard where that costs nothing: one signer, signed attributes, no MD5 and no SHA-1.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from asn1crypto import cms
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroom.errors import PipelineFailure

_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}
_MAX_CHAIN = 6
_AGAIN = "Have the sender sign the message again."


def verify(
    der: bytes, detached: bytes | None, *, trusted: Sequence[x509.Certificate], now: datetime
) -> tuple[bytes, x509.Certificate]:
    """What was signed, and the certificate that it was signed with. ``detached`` is what the signature is about, if it
    does not contain it. PipelineFailure if anything about it cannot be believed."""
    try:
        content_info = cms.ContentInfo.load(der, strict=True)
        if content_info["content_type"].native != "signed_data":
            raise _refused("It is not signed data.")
        signed = content_info["content"]
        encapsulated = signed["encap_content_info"]
        held = encapsulated["content"].native
        signers = list(signed["signer_infos"])
        embedded = [
            x509.load_der_x509_certificate(one.chosen.dump())
            for one in signed["certificates"] or ()
            if one.name == "certificate"
        ]
        if len(signers) != 1:
            raise _refused(f"It has {len(signers)} signers; one is taken.")
        if (held is None) == (detached is None):
            raise _refused("What it is about is there twice." if held is not None else "What it is about is missing.")
        content = cast(bytes, held if detached is None else detached)
        signer = signers[0]
        certificate = _signer_certificate(signer, [*embedded, *trusted])
        _verify_signature(signer, certificate, encapsulated["content_type"].dotted, content)
    except PipelineFailure:
        raise
    except UnsupportedAlgorithm as error:
        raise _refused(f"{error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _refused(f"It is damaged: {error}.") from None
    _verify_chain(certificate, embedded, trusted, now)
    return content, certificate


def _signer_certificate(signer: Any, known: Sequence[x509.Certificate]) -> x509.Certificate:
    """The one that the signature names; whether it is believed is another question."""
    chosen = signer["sid"].chosen
    for certificate in known:
        if signer["sid"].name == "issuer_and_serial_number":
            same_issuer = certificate.issuer.public_bytes() == chosen["issuer"].dump()
            if same_issuer and certificate.serial_number == chosen["serial_number"].native:
                return certificate
        else:
            try:
                key = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
            except x509.ExtensionNotFound:
                continue
            if key == chosen.native:
                return certificate
    raise _refused("The certificate that it names did not come along.")


def _verify_signature(signer: Any, certificate: x509.Certificate, content_type: str, content: bytes) -> None:
    digest = _hash(signer["digest_algorithm"]["algorithm"].native)
    attributes = signer["signed_attrs"]
    if not attributes or not len(attributes):
        # Without them, what was signed as one thing could be shown as another.
        raise _refused("It has no signed attributes.")
    if _only(attributes, "content_type").dotted != content_type:
        raise _refused("It is about another type of content.")
    hashed = hashes.Hash(digest)
    hashed.update(content)
    if not hmac.compare_digest(_only(attributes, "message_digest").native, hashed.finalize()):
        raise PipelineFailure(
            "The content is not what was signed.",
            why="Its digest is another one: it was changed after it was signed, perhaps on its way.",
            hint=_AGAIN,
        )
    # The attributes are signed as the SET that they are, and stand in the message with another tag.
    encoded = b"\x31" + attributes.dump()[1:]
    signature, algorithm = signer["signature"].native, signer["signature_algorithm"]
    key = certificate.public_key()
    name = algorithm.signature_algo
    try:
        if isinstance(key, rsa.RSAPublicKey) and name == "rsassa_pkcs1v15":
            _same(algorithm, digest)
            key.verify(signature, encoded, padding.PKCS1v15(), digest)
        elif isinstance(key, rsa.RSAPublicKey) and name == "rsassa_pss":
            _same(algorithm, digest)
            mask = algorithm["parameters"]["mask_gen_algorithm"]["parameters"]["algorithm"].native
            salt = algorithm["parameters"]["salt_length"].native
            key.verify(signature, encoded, padding.PSS(padding.MGF1(_hash(mask)), salt), digest)
        elif isinstance(key, ec.EllipticCurvePublicKey) and name == "ecdsa":
            _same(algorithm, digest)
            key.verify(signature, encoded, ec.ECDSA(digest))
        else:
            raise _refused(f"It was made by {name} with a key of another kind, or in a way that is not known here.")
    except InvalidSignature:
        raise _refused("It was not made with the key of the certificate that it names.") from None


def _only(attributes: Any, kind: str) -> Any:
    found = [one["values"] for one in attributes if one["type"].native == kind]
    if len(found) != 1 or len(found[0]) != 1:
        raise _refused(f"Its signed attribute {kind} is not there once.")
    return found[0][0]


def _same(algorithm: Any, digest: hashes.HashAlgorithm) -> None:
    """Where the algorithm names a digest of its own, it is that of the message."""
    if algorithm["algorithm"].native not in ("rsassa_pkcs1v15", "rsa") and algorithm.hash_algo != digest.name:
        raise _refused("It names two digests.")


def _hash(name: str) -> hashes.HashAlgorithm:
    if name not in _HASHES:
        raise _refused(f"Its digest is {name}; {', '.join(_HASHES)} are taken.")
    return _HASHES[name]()


def _verify_chain(
    certificate: x509.Certificate,
    embedded: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    now: datetime,
) -> None:
    ends = (
        verification.ExtensionPolicy.permit_all()
        .may_be_present(x509.KeyUsage, verification.Criticality.AGNOSTIC, _may_sign)
        .may_be_present(x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, _is_for_mail)
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(trusted)))
        .time(now)
        .max_chain_depth(_MAX_CHAIN)
        .extension_policies(ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(), ee_policy=ends)
        .build_client_verifier()
    )
    try:
        verifier.verify(certificate, list(embedded))
    except verification.VerificationError as error:
        raise PipelineFailure(
            "The certificate of the signer is not trusted.",
            why=f"{certificate.subject.rfc4514_string()}: {error}.",
            hint="If it should be, add it or its authority to the trusted certificates of the component.",
        ) from None


def _may_sign(policy: verification.Policy, leaf: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not (usage.digital_signature or usage.content_commitment):
        raise ValueError("its key is not for signatures")


def _is_for_mail(policy: verification.Policy, leaf: x509.Certificate, usage: x509.ExtendedKeyUsage | None) -> None:
    allowed = {ExtendedKeyUsageOID.EMAIL_PROTECTION, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    if usage is not None and not allowed & set(usage):
        raise ValueError("its key is for other purposes than messages")


def _refused(why: str) -> PipelineFailure:
    return PipelineFailure("The signature cannot be verified.", why=why, hint=_AGAIN)
