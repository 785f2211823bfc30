"""Handle SIGTERM and SIGINT by setting an event."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def set_on_stop_signals(stopping: threading.Event) -> Iterator[None]:
    """Within this context SIGTERM and SIGINT set the event. No effect outside the main thread, which handles
    signals.

    A thread sets the event, not a handler. Handlers run in the main thread only, which may hold the lock of the event
    or may wait: the kernel can deliver the signal to another thread, for example right after SIGCONT, and then nothing
    interrupts the wait. Python writes the number of each signal to a socket, in whichever thread it arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def watch() -> None:
        while received := reader.recv(1):
            if received[0] in _STOP_SIGNALS:
                stopping.set()

    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = threading.Thread(target=watch, name="stop signals", daemon=True)
    watcher.start()
    before = {number: signal.signal(number, lambda *_: None) for number in _STOP_SIGNALS}
    socket_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(socket_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        writer.close()
        watcher.join()
        reader.close()
