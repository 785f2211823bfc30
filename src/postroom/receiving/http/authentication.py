"""Authenticates HTTP requests by their head: client certificates, API keys, and the passwords of Basic authentication.

authentication = Authentication(certificates={}, api_keys={key_hash("…"): "Contoso"}, users={}, passwords=passwords)
sender = authentication.find_known(request) or authentication.verify_password(request)
# None: respond with 401 and authentication.challenge
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.secrets.credentials import KEY_HEADER, PasswordCheck, find_by_digest, key_hash

if TYPE_CHECKING:
    from postroom.http.messages import Request


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Who sent a request. ``party`` is None if the account is known but not its party."""

    account: str
    party: str | None


def parse_basic(authorization: str | None) -> tuple[str, str] | None:
    """Return the user name and the password of Basic authentication. They are not verified."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:  # not ASCII, not base64 or not UTF-8
        return None
    return (user, password) if user else None


@dataclass(frozen=True, kw_only=True)
class Authentication:
    """What a location accepts.

    ``certificates`` maps thumbprints to parties, ``api_keys`` maps hashes to parties, ``users`` maps user names to
    password hashes.
    """

    certificates: Mapping[str, str]
    api_keys: Mapping[str, str]
    users: Mapping[str, str]
    passwords: PasswordCheck

    def find_known(self, request: Request) -> Sender | None:
        """Return the sender of a request: the owner of its certificate, the owner of its API key, or a user whose
        password was verified before. This is fast."""
        if request.certificate is not None:
            party = find_by_digest(self.certificates, request.certificate.thumbprint)
            if party is not None:
                return Sender(account=request.certificate.account, party=party)
        keys = [value.strip() for name, value in request.headers if name == KEY_HEADER]
        # Several keys are ambiguous: a proxy may have checked a different one.
        if len(keys) == 1 and (party := find_by_digest(self.api_keys, key_hash(keys[0]))) is not None:
            return Sender(account=party, party=party)
        given = self._parse_user(request)
        if given is not None and self.passwords.was_verified(self.users.get(given[0]), given[1]):
            return Sender(account=given[0], party=given[0])
        return None

    def has_password(self, request: Request) -> bool:
        """Return True if ``verify_password`` may find a user."""
        return self._parse_user(request) is not None

    def verify_password(self, request: Request) -> Sender | None:
        """Return the user that sent the request, or None if its password is not valid. This is slow by design."""
        given = self._parse_user(request)
        if given is not None and self.passwords.verify(self.users.get(given[0]), given[1]):
            return Sender(account=given[0], party=given[0])
        return None

    def _parse_user(self, request: Request) -> tuple[str, str] | None:
        return parse_basic(request.header("authorization")) if self.users else None

    @property
    def challenge(self) -> str:
        """The value of the header WWW-Authenticate, which every 401 must have. Only Basic is a registered scheme."""
        schemes = [
            *(["ClientCertificate"] if self.certificates else []),
            *(["ApiKey"] if self.api_keys else []),
            *(["Basic"] if self.users else []),
        ]
        return ", ".join(f'{scheme} realm="Postroom"' for scheme in schemes)

    @property
    def accepted(self) -> str:
        """The credentials that a request needs, for the error message."""
        kinds = [
            *(["the client certificate of a known party"] if self.certificates else []),
            *(["an API key in the header X-API-Key"] if self.api_keys else []),
            *(["a user name and a password (Basic)"] if self.users else []),
        ]
        return " or ".join(kinds)
