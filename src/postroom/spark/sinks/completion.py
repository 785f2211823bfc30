"""Complete a written batch of a sink while the next one is written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.streams.sink_batches import SinkBatch, SinkQueue


class Completion:
    """Completes the batches of one sink in a thread with its own connection, one batch at a time.

    Leaving the block waits for the last batch. If the process dies before, the next one finds the batch written and
    completes it."""

    def __init__(self, login: Login, queue: SinkQueue) -> None:
        self._login = login
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="complete")
        self._running: Future[int] | None = None

    def __enter__(self) -> Completion:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._thread.shutdown()
        if kind is None:
            self.wait()

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start(self, connection: Connection, batch: SinkBatch) -> int:
        """Record that a batch is written, and start to complete it. Return the number of its messages. Wait for the
        batch before, and raise its error."""
        messages = self._queue.set_written(connection, batch)
        self.wait()
        self._running = self._thread.submit(self._complete, batch)
        return messages

    def wait(self) -> None:
        """Wait until the batch is completed. Raise the error if it is not."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _complete(self, batch: SinkBatch) -> int:
        with self._login.connect("sink") as connection:
            return self._queue.complete(connection, batch)
