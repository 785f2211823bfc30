"""Finds the end of an HTTP response while its bytes arrive, so that it can be read without waiting.

Only the length of the response is found here. Whether it is valid is decided when it is read: what cannot be understood
counts as complete.
"""

from __future__ import annotations

import re

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/\d\.\d +(\d{3})")
_CONTENT_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d+)[ \t]*(?:\r?\n|$)")
_CHUNKED = re.compile(rb"\ntransfer-encoding:[ \t]*chunked[ \t]*(?:\r?\n|$)")
#: The ends of the last chunk, or of the trailer after it.
_CHUNKED_ENDS = (b"\n\r\n", b"\n\n")
_NO_BODY = (204, 304)


class ResponseEnd:
    """The end of the response to a POST. ``status`` is 0 until the head of the response is complete."""

    def __init__(self) -> None:
        self.status = 0
        self._start = 0
        self._searched = 0
        self._is_chunked = False
        self._size: int | None = None

    def is_complete(self, received: bytearray) -> bool:
        """Return True if the response is complete. ``received`` has everything that has arrived so far."""
        while not self.status:
            # The end of the head may have arrived in two parts.
            found = _HEAD_END.search(received, max(self._start, self._searched - 3))
            if found is None:
                self._searched = len(received)
                return False
            if not self._read_head(bytes(received[self._start : found.start()])):
                return True
            self._start = self._searched = found.end()
        if self._is_chunked:
            return received.endswith(_CHUNKED_ENDS, self._start)
        # Without a size the body ends with the connection.
        return self._size is not None and len(received) - self._start >= self._size

    def _read_head(self, head: bytes) -> bool:
        """Take the status and the size of the body. Return False if the head cannot be understood."""
        status = _STATUS.match(head)
        if status is None:
            return False
        if status[1].startswith(b"1"):  # an interim response; the response follows
            return True
        self.status = int(status[1])
        lines = head.lower()
        self._is_chunked = _CHUNKED.search(lines) is not None
        if self.status in _NO_BODY:
            self._size = 0
        elif size := _CONTENT_LENGTH.search(lines):
            self._size = int(size[1])
        return True
