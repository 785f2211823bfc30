"""The TLS settings of a listener: its own certificate, and the client certificates that it accepts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """PEM files. Clients are asked for a certificate if there is a ``client_ca``."""

    certificate: Path
    key: Path
    client_ca: Path | None
    requires_client_certificate: bool

    def create_context(self) -> ssl.SSLContext:
        """Read the files. Raise OSError if one of them is missing or invalid."""
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Without a password, an encrypted key would be asked for on the terminal.
        context.load_cert_chain(self.certificate, self.key, password="")
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED if self.requires_client_certificate else ssl.CERT_OPTIONAL
        return context

    def read_versions(self) -> tuple[tuple[int, int], ...]:
        """Return a value that changes when one of the files changes. Raise OSError if a file is missing."""
        files = (self.certificate, self.key, *([] if self.client_ca is None else [self.client_ca]))
        return tuple((found.st_mtime_ns, found.st_ino) for found in (file.stat() for file in files))


@dataclass(frozen=True, kw_only=True)
class ClientCertificate:
    """A certificate that a client has shown. TLS has verified it."""

    der: bytes

    @cached_property
    def thumbprint(self) -> str:
        """The SHA-256 in hexadecimal digits."""
        return hashlib.sha256(self.der).hexdigest()

    @cached_property
    def expires_at(self) -> datetime:
        """The end of the validity. TLS verifies it only in a full handshake, and not in a resumed session."""
        from cryptography import x509

        try:
            return x509.load_der_x509_certificate(self.der).not_valid_after_utc
        except ValueError:  # OpenSSL can read more certificates, and has verified it
            return datetime.max.replace(tzinfo=UTC)

    @cached_property
    def subject(self) -> str:
        """The distinguished name of the client. Empty if it cannot be read."""
        from cryptography import x509

        try:
            return x509.load_der_x509_certificate(self.der).subject.rfc4514_string()
        except ValueError:
            return ""

    @property
    def account(self) -> str:
        """The distinguished name of the client, or the thumbprint if there is none."""
        return self.subject or self.thumbprint


def get_client_certificate(tls: ssl.SSLObject | None) -> ClientCertificate | None:
    """Return the certificate of the client of a connection, or None if it has none."""
    der = None if tls is None else tls.getpeercert(binary_form=True)
    return None if der is None else ClientCertificate(der=der)
