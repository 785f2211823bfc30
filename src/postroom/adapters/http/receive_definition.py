"""The HTTP adapter that receives, as a user declares it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters.definition import AdapterDefinition
from postroom.adapters.http.definition import timeout_problems

#: Where a location listens that names no address: this machine alone can reach it.
LOOPBACK = "127.0.0.1"

_LARGEST = 1 << 30
_PATH = re.compile(r"/[!$&'()*+,;=:@%0-9A-Za-z._~/-]*")


class HttpReceive(AdapterDefinition):
    """Takes in what is POSTed to a path: ``adapters.HttpReceive("/orders", port=8080)``.

    Answers 202 with the interchange id after the message is in the MessageBox for good, and 503 while it cannot be put
    there. Locations of one host may share a port, each with its path. ``listen`` is the address to listen on: the
    machine itself by default, ``0.0.0.0`` for everywhere. A body may have ``max_bytes``. ``timeout`` is for the head of
    a request, and for every wait for more of its body. With ``certificate`` and ``key`` (PEM files; a relative path is
    taken from the home folder) the port speaks TLS only.
    """

    transport_type: ClassVar[str] = "HTTP"
    intake_unit: ClassVar[str] = "interchange"

    kind: Literal["http_receive"] = "http_receive"
    path: str
    port: int
    listen: str
    max_bytes: int
    timeout: float
    certificate: str | None
    key: str | None

    def __init__(
        self,
        path: str,
        *,
        port: int,
        listen: str = LOOPBACK,
        max_bytes: int = _LARGEST,
        timeout: float = 30.0,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        kind: Literal["http_receive"] = "http_receive",
    ) -> None:
        super().__init__(
            path=path,
            port=port,
            listen=listen,
            max_bytes=max_bytes,
            timeout=timeout,
            certificate=os.fspath(certificate) if isinstance(certificate, os.PathLike) else certificate,
            key=os.fspath(key) if isinstance(key, os.PathLike) else key,
            kind=kind,
        )

    def problems(self) -> list[str]:
        found = timeout_problems(self.timeout)
        if not _PATH.fullmatch(self.path):
            found.append(f"path {self.path!r} is not the path of a URL, such as '/orders'.")
        if not 1 <= self.port <= 65535:
            found.append(f"port is {self.port}, but must be between 1 and 65535.")
        if not self.listen.strip() or re.search(r"[\s/\x00]", self.listen):
            found.append(f"listen {self.listen!r} is not an address, such as '0.0.0.0'.")
        if self.max_bytes < 1:
            found.append(f"max_bytes is {self.max_bytes}, but must be at least 1.")
        if (self.certificate is None) != (self.key is None):
            found.append("certificate and key belong together: give both, or neither.")
        return found

    def address(self, home: Path) -> str:
        scheme = "http" if self.certificate is None else "https"
        host = f"[{self.listen}]" if ":" in self.listen else self.listen
        return f"{scheme}://{host}:{self.port}{self.path}"

    def certificate_files(self, home: Path) -> tuple[Path, Path] | None:
        """The certificate and its key, if the port speaks TLS."""
        if self.certificate is None or self.key is None:
            return None
        return home / self.certificate, home / self.key
