"""The definition of the HTTP adapter that receives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from postroom.adapters.contract import ReceivedBy, ReceiveDefinition
from postroom.adapters.http.definition import find_timeout_problems
from postroom.http.tls import TlsFiles
from postroom.secrets.credentials import is_digest, is_password_hash, normalize_digest
from postroom.stored_definitions import OptionalPath

#: The default address to listen on. Only programs on the same machine can reach it.
LOOPBACK = "127.0.0.1"

_MAX_RESPONSE_TIMEOUT = 86_400.0
_PATH = re.compile(r"/[!$&'()*+,;=:@%0-9A-Za-z._~/-]*")

#: Parties by digests.
Digests = Annotated[
    Mapping[str, str],
    AfterValidator(lambda parties: {normalize_digest(digest): party for digest, party in parties.items()}),
]


class HttpReceive(ReceiveDefinition):
    """Receives what is POSTed to a path: ``adapters.HttpReceive("/orders", port=8080)``.

    Responds with 202 and the interchange id after the interchange is stored in the MessageBox, and with 503 while it
    cannot be stored. Locations of one host may share a port, each with its own path. ``listen`` is the address to
    listen on: the loopback address by default, ``0.0.0.0`` for all addresses. ``max_bytes`` is the maximum size of a
    body. ``timeout`` applies to the head of a request, and to each wait for more of its body. ``client_connections`` is
    the maximum number of connections from one address, and ``party_requests`` the maximum number of requests in
    progress of one party. With ``certificate`` and ``key`` (PEM files; a relative path is resolved against the home
    folder) the port accepts only TLS. With ``client_ca`` too, a PEM file with authorities, a client needs a certificate
    of one of them. With ``client_certificate="optional"`` it may do without.

    At a two-way receive port it responds with the response to the request, and with 504 if that does not come within
    ``response_timeout`` seconds.

    ``certificates`` maps the SHA-256 thumbprints of client certificates to parties. ``api_keys`` maps
    ``components.key_hash(key)`` to the party of the key. ``users`` maps user names to
    ``adapters.password_hash(password)``. If one of these is declared, a request needs one of the declared certificates,
    the header X-API-Key or Basic authentication. Other requests get a 401 before their body is read, and nothing of
    them is stored.
    """

    transport_type: ClassVar[str] = "HTTP"
    received_by: ClassVar[ReceivedBy] = ReceivedBy.LISTENER
    can_be_two_way: ClassVar[bool] = True
    intake_unit: ClassVar[str] = "interchange"

    kind: Literal["http_receive"] = "http_receive"
    path: str = Field(kw_only=False)
    port: int
    listen: str = LOOPBACK
    max_bytes: int = 1 << 30
    timeout: float = 30.0
    client_connections: int = 50
    party_requests: int = 50
    #: Twenty minutes, as in BizTalk (RR-05).
    response_timeout: float = 1200.0
    certificate: OptionalPath = Field(default=None, validate_default=True)
    key: OptionalPath = Field(default=None, validate_default=True)
    client_ca: OptionalPath = Field(default=None, validate_default=True)
    client_certificate: Literal["required", "optional"] = "required"
    certificates: Digests = Field(default_factory=dict)
    api_keys: Digests = Field(default_factory=dict)
    users: Mapping[str, str] = Field(default_factory=dict)

    def problems(self) -> list[str]:
        found = find_timeout_problems(self.timeout)
        if not _PATH.fullmatch(self.path):
            found.append(f"path {self.path!r} is not the path of a URL, such as '/orders'.")
        if not 1 <= self.port <= 65535:
            found.append(f"port is {self.port}, but must be between 1 and 65535.")
        if not self.listen.strip() or re.search(r"[\s/\x00]", self.listen):
            found.append(f"listen {self.listen!r} is not an address, such as '0.0.0.0'.")
        if self.client_connections < 1:
            found.append(f"client_connections is {self.client_connections}, but must be at least 1.")
        if self.party_requests < 1:
            found.append(f"party_requests is {self.party_requests}, but must be at least 1.")
        if not 0 < self.response_timeout <= _MAX_RESPONSE_TIMEOUT:
            found.append(
                f"response_timeout is {self.response_timeout:g} seconds, but must be above 0 and at most"
                f" {_MAX_RESPONSE_TIMEOUT:g}."
            )
        if self.max_bytes < 1:
            found.append(f"max_bytes is {self.max_bytes}, but must be at least 1.")
        if (self.certificate is None) != (self.key is None):
            found.append("certificate and key belong together: set both or neither.")
        if self.client_ca is not None and self.certificate is None:
            found.append("client_ca needs TLS: set certificate and key too.")
        if self.certificates and self.client_ca is None:
            found.append("certificates needs client_ca, the authorities that have issued them.")
        return found + self._authentication_problems()

    @property
    def needs_authentication(self) -> bool:
        """True if a request needs a certificate of a party, an API key or a password."""
        return bool(self.certificates or self.api_keys or self.users)

    def _authentication_problems(self) -> list[str]:
        found = [
            f"certificates: {digest[:20]!r} is not a SHA-256 thumbprint, which has 64 hexadecimal digits."
            for digest in self.certificates
            if not is_digest(digest)
        ]
        found += ["certificates: a party has no name." for party in self.certificates.values() if not party.strip()]
        # The wrong value may be a key or a password itself, so it is not shown.
        found += [
            f"api_keys: the entry of {party!r} is not the hash of a key; write components.key_hash(key)."
            for digest, party in self.api_keys.items()
            if not is_digest(digest)
        ]
        found += ["api_keys: a party has no name." for party in self.api_keys.values() if not party.strip()]
        found += [
            f"users: {user!r} is not a user name; it is empty or contains a colon."
            for user in self.users
            if not user.strip() or ":" in user
        ]
        found += [
            f"users: the entry of {user!r} is not the hash of a password; write adapters.password_hash(password)."
            for user, stored in self.users.items()
            if not is_password_hash(stored)
        ]
        return found

    def address(self, home: Path) -> str:
        scheme = "http" if self.certificate is None else "https"
        host = f"[{self.listen}]" if ":" in self.listen else self.listen
        return f"{scheme}://{host}:{self.port}{self.path}"

    def tls_files(self, home: Path) -> TlsFiles | None:
        """Return the files for TLS, or None if the port does not use TLS."""
        if self.certificate is None or self.key is None:
            return None
        return TlsFiles(
            certificate=home / self.certificate,
            key=home / self.key,
            client_ca=None if self.client_ca is None else home / self.client_ca,
            requires_client_certificate=self.client_certificate == "required",
        )
