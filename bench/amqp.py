"""A publisher to RabbitMQ with little overhead: messages are encoded before the clock starts.

    publisher = Publisher(port)
    publisher.publish([encode_message("exchange", {"Region": "EU"}, b"...")], outstanding=1)

The frames are encoded by pika. A connection of pika encodes each message when it is sent, and its cost would be
measured instead of the cost of the broker.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pika
from pika import frame, spec

_CHANNEL = 1
_PERSISTENT = 2
_RECEIVE_BYTES = 1 << 16
#: A received confirm: frame type, channel, size, class, method, delivery tag, and a flag that includes earlier tags.
_CONFIRM = struct.Struct(">BHLHHQB")
_END = 1


def encode_message(exchange: str, headers: Mapping[str, Any], body: bytes) -> bytes:
    """Return the three frames of a persistent message."""
    properties = pika.BasicProperties(headers=dict(headers), delivery_mode=_PERSISTENT)
    return b"".join(
        each.marshal()
        for each in (
            frame.Method(_CHANNEL, spec.Basic.Publish(exchange=exchange)),
            frame.Header(_CHANNEL, len(body), properties),
            frame.Body(_CHANNEL, body),
        )
    )


class Publisher:
    """A connection with one channel, on which every publish is confirmed."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        #: The last message of the confirmed sequence, and the confirmed messages after it.
        self._confirmed, self._confirmed_early = 0, set[int]()
        self._socket.sendall(frame.ProtocolHeader().marshal())
        self._expect(spec.Connection.Start)
        self._send(0, spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        tune = self._expect(spec.Connection.Tune)
        self._send(0, spec.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self._send(0, spec.Connection.Open("/"))
        self._expect(spec.Connection.OpenOk)
        self._send(_CHANNEL, spec.Channel.Open())
        self._expect(spec.Channel.OpenOk)
        self._send(_CHANNEL, spec.Confirm.Select())
        self._expect(spec.Confirm.SelectOk)

    def close(self) -> None:
        self._socket.close()

    def send_methods(self, methods: Sequence[Any], last: Any, answer: type[Any]) -> None:
        """Send methods without an answer, then ``last``, and wait for its answer."""
        for method in (*methods, last):
            self._send(_CHANNEL, method)
        self._expect(answer)

    def publish(self, messages: Sequence[bytes], *, outstanding: int) -> None:
        """Publish the messages and wait for all confirms, with at most ``outstanding`` unconfirmed messages."""
        first = sent = self._confirmed
        while self._confirmed < first + len(messages):
            unconfirmed = sent - self._confirmed - len(self._confirmed_early)
            more = min(outstanding - unconfirmed, first + len(messages) - sent)
            # Send in portions, because a system call per message would cost more than the message.
            if more and (unconfirmed * 2 <= outstanding):
                self._socket.sendall(b"".join(messages[sent - first : sent - first + more]))
                sent += more
            self._read_confirms()

    def _read_confirms(self) -> None:
        data = self._received + self._socket.recv(_RECEIVE_BYTES)
        whole = len(data) // (_CONFIRM.size + _END) * (_CONFIRM.size + _END)
        for at in range(0, whole, _CONFIRM.size + _END):
            _, _, _, class_id, method_id, tag, multiple = _CONFIRM.unpack_from(data, at)
            if (class_id << 16 | method_id) != spec.Basic.Ack.INDEX:
                raise RuntimeError("RabbitMQ sent an answer that is not a confirm.")
            self._confirm(tag, multiple=bool(multiple & 1))
        self._received = data[whole:]

    def _confirm(self, tag: int, *, multiple: bool) -> None:
        early = self._confirmed_early
        if multiple:
            self._confirmed = max(self._confirmed, tag)
            early -= {one for one in early if one <= tag}
        else:
            early.add(tag)
        while self._confirmed + 1 in early:
            self._confirmed += 1
            early.remove(self._confirmed)

    def _send(self, channel: int, method: Any) -> None:
        self._socket.sendall(frame.Method(channel, method).marshal())

    def _expect(self, kind: type[Any]) -> Any:
        while True:
            used, answer = frame.decode_frame(self._received)
            if answer is not None:
                break
            received = self._socket.recv(_RECEIVE_BYTES)
            if not received:
                raise RuntimeError("RabbitMQ closed the connection.")
            self._received += received
        self._received = self._received[used:]
        if not isinstance(answer.method, kind):
            raise RuntimeError(f"RabbitMQ answered {answer.method} instead of {kind.__name__}.")
        return answer.method
