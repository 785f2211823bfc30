"""Party resolvers: by the certificate of a signature, and by an API key (SEC-12).

    pipelines.Receive(
        decode=[components.SMime(trusted="/etc/postroom/partners.pem"), components.Mime()],
        resolve_party=[
            components.PartyByCertificate({"3f5c…": "Acme"}),        # runs first
            components.PartyByKey({components.key_hash("…"): "Initech"}),
        ],
    )

If no resolver knows the sender, the party is Guest. The result is trusted only in a trusted host.
"""

from __future__ import annotations

from collections.abc import Mapping

from postroom.message import Message
from postroom.pipelines.components.contract import PartyResolver
from postroom.properties import Property
from postroom.secrets.credentials import HASHED, KEY_HEADER, find_by_digest, is_digest, key_hash, normalize_digest
from postroom.system_properties import BTS, HTTP
from postroom.values import ValueType


class _ByDigest(PartyResolver):
    parties: Mapping[str, str]

    def __init__(self, parties: Mapping[str, str], **settings: object) -> None:
        super().__init__(
            **{"parties": {normalize_digest(digest): party for digest, party in parties.items()}, **settings}
        )

    def problems(self) -> list[str]:
        found = [] if self.parties else ["There are no parties."]
        for digest, party in self.parties.items():
            if not is_digest(digest):
                found.append(f"{digest[:20]!r} is not a SHA-256, which has 64 hexadecimal digits.")
            if not party.strip():
                found.append(f"The party of {digest[:20]!r} has no name.")
        return found

    def _find_party(self, digest: str) -> str | None:
        return find_by_digest(self.parties, normalize_digest(digest))


class PartyByCertificate(_ByDigest):
    """Resolves the party by the certificate of the signature. ``parties`` maps SHA-256 thumbprints to parties.

    ``SMime`` writes ``BTS.SignatureCertificate`` after it has verified the signature and the certificate.
    """

    def __init__(self, parties: Mapping[str, str]) -> None:
        super().__init__(parties)

    def resolve(self, message: Message) -> str | None:
        thumbprint = message.context.get(BTS.SignatureCertificate)
        return self._find_party(thumbprint) if isinstance(thumbprint, str) and thumbprint else None


class PartyByKey(_ByDigest):
    """Resolves the party by an API key. ``parties`` maps the hashes of keys (``key_hash``) to parties.

    In an HTTP request the key is in the header X-API-Key. For other adapters, ``property`` names the property that has
    the key, such as ``Partners.Key``. A decoder of your own writes it.
    """

    property: str | None = None

    def __init__(self, parties: Mapping[str, str], *, property: str | None = None) -> None:
        super().__init__(parties, property=property)

    def resolve(self, message: Message) -> str | None:
        if self.property is None:
            return self._resolve_by_header(message)
        key = message.context.get(Property(self.property, ValueType.STR.python_type))
        return self._find_party(key_hash(key)) if isinstance(key, str) and key else None

    def _resolve_by_header(self, message: Message) -> str | None:
        headers = message.context.get(HTTP.InboundHttpHeaders)
        if not isinstance(headers, str):
            return None
        lines = (line.partition(":") for line in headers.split("\r\n"))
        keys = [value.strip() for name, _, value in lines if name.strip().lower() == KEY_HEADER]
        # Several keys are ambiguous: a proxy may have checked a different one.
        if len(keys) != 1 or not keys[0].startswith(HASHED):
            return None
        return self._find_party(keys[0].removeprefix(HASHED))
