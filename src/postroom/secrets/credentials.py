"""Hashes of API keys and passwords. Definitions contain only hashes.

All comparisons run in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

#: The HTTP header of an API key. The adapter writes only its hash into the context, with the prefix HASHED.
KEY_HEADER = "x-api-key"
HASHED = "sha256:"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEME = "scrypt"
_COST, _BLOCK_SIZE, _PARALLEL = 1 << 14, 8, 1
_MAX_VERIFIED = 1_000


def key_hash(key: str) -> str:
    """Return the hash of an API key, which is stored instead of the key. Use keys of at least 128 random bits."""
    return hashlib.sha256(key.encode()).hexdigest()


def password_hash(password: str) -> str:
    """Return a salted hash of a password for ``adapters.HttpReceive(users=...)``. Each call returns another one."""
    salt = secrets.token_bytes(16)
    return ":".join((_SCHEME, salt.hex(), _derive(password, salt).hex()))


def normalize_digest(digest: str) -> str:
    """Return a SHA-256 as OpenSSL and others write it, in lower case and without separators."""
    return re.sub(r"[\s:]", "", digest).lower()


def is_digest(digest: str) -> bool:
    """Return True if this is a normalized SHA-256."""
    return _DIGEST.fullmatch(digest) is not None


def is_password_hash(stored: str) -> bool:
    """Return True if this is a result of ``password_hash``."""
    return re.fullmatch(rf"{_SCHEME}:[0-9a-f]{{32}}:[0-9a-f]{{128}}", stored) is not None


def find_by_digest(parties: Mapping[str, str], digest: str) -> str | None:
    """Return the party of a digest. Every known digest is compared in constant time."""
    matches = [party for known, party in parties.items() if hmac.compare_digest(known, digest)]
    return matches[0] if matches else None


class PasswordCheck:
    """Verifies passwords. It caches the correct ones, because a verification is slow by design. Thread-safe."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._verified: set[bytes] = set()
        self._unknown_user_hash = password_hash(secrets.token_hex())

    def was_verified(self, stored: str | None, password: str) -> bool:
        """Return True if the password was verified before. This is fast."""
        return stored is not None and self._get_entry(stored, password) in self._verified

    def verify(self, stored: str | None, password: str) -> bool:
        """Return True if the password has this hash. An unknown user (None) takes as long as a wrong password."""
        if self.was_verified(stored, password):
            return True
        expected = stored or self._unknown_user_hash
        _, salt, derived = expected.split(":")
        is_correct = hmac.compare_digest(_derive(password, bytes.fromhex(salt)), bytes.fromhex(derived))
        if is_correct:
            if len(self._verified) >= _MAX_VERIFIED:
                self._verified.clear()
            self._verified.add(self._get_entry(expected, password))
        return is_correct

    def _get_entry(self, stored: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{stored} {password}".encode(), "sha256")


def _derive(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK_SIZE, p=_PARALLEL)
