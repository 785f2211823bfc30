"""A server that asks each client of PostgreSQL for its password, and refuses it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CLEARTEXT_PASSWORD = b"R" + struct.pack("!ii", 8, 3)
#: A careless server repeats the password in its error, on a second line.
_REFUSAL = "FATAL", "28P01", 'password authentication failed for user "erp"\nthe password was {}'


@contextmanager
def refuse_passwords() -> Iterator[tuple[str, list[str]]]:
    """Run the server. Yield its URL, and the passwords that it was given."""
    passwords: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, passwords), daemon=True)
        thread.start()
        yield (
            f"postgresql://erp@127.0.0.1:{listener.getsockname()[1]}/erp?sslmode=disable&gssencmode=disable",
            passwords,
        )
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def _serve(listener: socket.socket, passwords: list[str]) -> None:
    with suppress(OSError):  # the listener is closed
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError), client.makefile("rb") as stream:
                stream.read(struct.unpack("!i", stream.read(4))[0] - 4)  # the startup message
                client.sendall(_CLEARTEXT_PASSWORD)
                stream.read(1)
                passwords.append(stream.read(struct.unpack("!i", stream.read(4))[0] - 4).rstrip(b"\0").decode())
                severity, code, text = _REFUSAL
                fields = "".join(f"{kind}{value}\0" for kind, value in zip("SCM", (severity, code, text), strict=True))
                content = fields.format(passwords[-1]).encode() + b"\0"
                client.sendall(b"E" + struct.pack("!i", len(content) + 4) + content)
