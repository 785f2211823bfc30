"""Resolvers of parties: by the certificate of a signature, and by a key that was sent along (SEC-12).

    pipelines.Receive(
        decode=[components.SMime(trusted="/etc/postroom/partners.pem"), components.Mime()],
        resolve_party=[
            components.PartyByCertificate({"3f5c…": "Acme"}),        # asked first
            components.PartyByKey({components.key_hash("…"): "Initech"}),
        ],
    )

Whom none of them knows is the guest. What they say counts in a trusted host only.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from postroom.message import Message
from postroom.pipelines.components.contract import PartyResolver
from postroom.properties import Property
from postroom.system_properties import BTS, HTTP
from postroom.values import ValueType

#: The header that a key is sent in by HTTP. The adapter puts only its hash into the context, with this before it.
KEY_HEADER = "x-api-key"
HASHED = "sha256:"

_DIGEST = re.compile(r"[0-9a-f]{64}")


def key_hash(key: str) -> str:
    """What is kept of an API key. Make keys of at least 128 random bits: then nobody finds the key by its hash."""
    return hashlib.sha256(key.encode()).hexdigest()


class _ByDigest(PartyResolver):
    parties: Mapping[str, str]

    def __init__(self, parties: Mapping[str, str], **settings: object) -> None:
        super().__init__(**{"parties": {_plain(digest): party for digest, party in parties.items()}, **settings})

    def problems(self) -> list[str]:
        found = [] if self.parties else ["There are no parties."]
        for digest, party in self.parties.items():
            if not _DIGEST.fullmatch(digest):
                found.append(f"{digest[:20]!r} is not a SHA-256, which has 64 hexadecimal digits.")
            if not party.strip():
                found.append(f"The party of {digest[:20]!r} has no name.")
        return found

    def _party(self, digest: str) -> str | None:
        # All are compared, in the same time each: how long it takes says nothing about what is known.
        known = [party for one, party in self.parties.items() if hmac.compare_digest(one, _plain(digest))]
        return known[0] if known else None


def _plain(digest: str) -> str:
    return re.sub(r"[\s:]", "", digest).lower()


class PartyByCertificate(_ByDigest):
    """The party whose certificate has signed the message: the SHA-256 thumbprints of certificates, and whose they are.

    ``BTS.SignatureCertificate`` is written by ``SMime``, after the signature and the certificate were verified.
    """

    def __init__(self, parties: Mapping[str, str]) -> None:
        super().__init__(parties)

    def resolve(self, message: Message) -> str | None:
        thumbprint = message.context.get(BTS.SignatureCertificate)
        return self._party(thumbprint) if isinstance(thumbprint, str) and thumbprint else None


class PartyByKey(_ByDigest):
    """The party whose key was sent along: the hashes of keys (``key_hash``), and whose they are.

    By HTTP the key is in the header X-API-Key. For other ways in, ``property`` names the property that it is in, such
    as ``Partners.Key``, which a decoder of your own writes.
    """

    property: str | None = None

    def __init__(self, parties: Mapping[str, str], *, property: str | None = None) -> None:
        super().__init__(parties, property=property)

    def resolve(self, message: Message) -> str | None:
        if self.property is None:
            return self._by_header(message)
        key = message.context.get(Property(self.property, ValueType.STR.python_type))
        return self._party(key_hash(key)) if isinstance(key, str) and key else None

    def _by_header(self, message: Message) -> str | None:
        headers = message.context.get(HTTP.InboundHttpHeaders)
        if not isinstance(headers, str):
            return None
        sent = [value.strip() for name, _, value in map(_split, headers.split("\r\n")) if name == KEY_HEADER]
        # Two keys are none: which of them a proxy before us has looked at is not known.
        if len(sent) != 1 or not sent[0].startswith(HASHED):
            return None
        return self._party(sent[0].removeprefix(HASHED))


def _split(line: str) -> tuple[str, str, str]:
    name, colon, value = line.partition(":")
    return name.strip().lower(), colon, value
