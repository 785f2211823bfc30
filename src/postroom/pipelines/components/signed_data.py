"""Verifies the signature of a CMS message (RFC 5652) and the certificate of the signer.

asn1crypto parses the structure. cryptography verifies the signature and the chain of certificates to a trusted one. It
is stricter than the standard: one signer, signed attributes, no MD5 and no SHA-1.
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
    """Return the signed content and the certificate of the signer. ``detached`` is the content if the signature does
    not contain it. Raises PipelineFailure if the signature or the certificate cannot be verified."""
    try:
        content_info = cms.ContentInfo.load(der, strict=True)
        if content_info["content_type"].native != "signed_data":
            raise _signature_failure("It is not signed data.")
        signed = content_info["content"]
        encapsulated = signed["encap_content_info"]
        embedded_content = encapsulated["content"].native
        signers = list(signed["signer_infos"])
        embedded = [
            x509.load_der_x509_certificate(certificate.chosen.dump())
            for certificate in signed["certificates"] or ()
            if certificate.name == "certificate"
        ]
        if len(signers) != 1:
            raise _signature_failure(f"It has {len(signers)} signers; there must be one.")
        if (embedded_content is None) == (detached is None):
            raise _signature_failure(
                "The signed content is there twice."
                if embedded_content is not None
                else "The signed content is missing."
            )
        content = cast(bytes, embedded_content if detached is None else detached)
        signer = signers[0]
        certificate = _signer_certificate(signer, [*embedded, *trusted])
        _verify_signature(signer, certificate, encapsulated["content_type"].dotted, content)
    except PipelineFailure:
        raise
    except UnsupportedAlgorithm as error:
        raise _signature_failure(f"{error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, x509.InvalidVersion) as error:
        raise _signature_failure(f"It is damaged: {error}.") from None
    _verify_chain(certificate, embedded, trusted, now)
    return content, certificate


def _signer_certificate(signer: Any, known: Sequence[x509.Certificate]) -> x509.Certificate:
    """Return the certificate that the signature names. It is not verified here."""
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
    raise _signature_failure("The message does not contain the certificate that it names.")


def _verify_signature(signer: Any, certificate: x509.Certificate, content_type: str, content: bytes) -> None:
    digest = _get_hash(signer["digest_algorithm"]["algorithm"].native)
    attributes = signer["signed_attrs"]
    if not attributes or not len(attributes):
        # Without them the content type could be changed.
        raise _signature_failure("It has no signed attributes.")
    if _get_attribute(attributes, "content_type").dotted != content_type:
        raise _signature_failure("It is for another content type.")
    hashed = hashes.Hash(digest)
    hashed.update(content)
    if not hmac.compare_digest(_get_attribute(attributes, "message_digest").native, hashed.finalize()):
        raise PipelineFailure(
            "The content does not match the signature.",
            why="Its digest differs: the content was changed after it was signed.",
            hint=_AGAIN,
        )
    # The attributes are signed with the tag of a SET, but have another tag in the message.
    encoded = b"\x31" + attributes.dump()[1:]
    signature, algorithm = signer["signature"].native, signer["signature_algorithm"]
    key = certificate.public_key()
    name = algorithm.signature_algo
    try:
        if isinstance(key, rsa.RSAPublicKey) and name == "rsassa_pkcs1v15":
            _check_same_digest(algorithm, digest)
            key.verify(signature, encoded, padding.PKCS1v15(), digest)
        elif isinstance(key, rsa.RSAPublicKey) and name == "rsassa_pss":
            _check_same_digest(algorithm, digest)
            mask = algorithm["parameters"]["mask_gen_algorithm"]["parameters"]["algorithm"].native
            salt = algorithm["parameters"]["salt_length"].native
            key.verify(signature, encoded, padding.PSS(padding.MGF1(_get_hash(mask)), salt), digest)
        elif isinstance(key, ec.EllipticCurvePublicKey) and name == "ecdsa":
            _check_same_digest(algorithm, digest)
            key.verify(signature, encoded, ec.ECDSA(digest))
        else:
            raise _signature_failure(f"The algorithm {name} does not match the key, or is not supported.")
    except InvalidSignature:
        raise _signature_failure("It does not match the key of the certificate that it names.") from None


def _get_attribute(attributes: Any, kind: str) -> Any:
    found = [attribute["values"] for attribute in attributes if attribute["type"].native == kind]
    if len(found) != 1 or len(found[0]) != 1:
        raise _signature_failure(f"The signed attribute {kind} must occur once.")
    return found[0][0]


def _check_same_digest(algorithm: Any, digest: hashes.HashAlgorithm) -> None:
    """Raise PipelineFailure if the algorithm names another digest than the message."""
    if algorithm["algorithm"].native not in ("rsassa_pkcs1v15", "rsa") and algorithm.hash_algo != digest.name:
        raise _signature_failure("It names two different digests.")


def _get_hash(name: str) -> hashes.HashAlgorithm:
    if name not in _HASHES:
        raise _signature_failure(f"Its digest is {name}; supported are {', '.join(_HASHES)}.")
    return _HASHES[name]()


def _verify_chain(
    certificate: x509.Certificate,
    embedded: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    now: datetime,
) -> None:
    signer_policy = (
        verification.ExtensionPolicy.permit_all()
        .may_be_present(x509.KeyUsage, verification.Criticality.AGNOSTIC, _check_key_usage)
        .may_be_present(x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, _check_extended_key_usage)
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(trusted)))
        .time(now)
        .max_chain_depth(_MAX_CHAIN)
        .extension_policies(ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(), ee_policy=signer_policy)
        .build_client_verifier()
    )
    try:
        verifier.verify(certificate, list(embedded))
    except verification.VerificationError as error:
        raise PipelineFailure(
            "The certificate of the signer is not trusted.",
            why=f"{_format_subject(certificate)}: {error}.",
            hint="If it should be trusted, add it or its authority to the trusted certificates of the component.",
        ) from None


def _format_subject(certificate: x509.Certificate) -> str:
    try:
        return certificate.subject.rfc4514_string()
    except ValueError:
        return "a certificate whose subject cannot be read"


def _check_key_usage(policy: verification.Policy, leaf: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not (usage.digital_signature or usage.content_commitment):
        raise ValueError("its key is not for signatures")


def _check_extended_key_usage(
    policy: verification.Policy, leaf: x509.Certificate, usage: x509.ExtendedKeyUsage | None
) -> None:
    allowed = {ExtendedKeyUsageOID.EMAIL_PROTECTION, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    if usage is not None and not allowed & set(usage):
        raise ValueError("its key is not for messages")


def _signature_failure(why: str) -> PipelineFailure:
    return PipelineFailure("The signature cannot be verified.", why=why, hint=_AGAIN)
