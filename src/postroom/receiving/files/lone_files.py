"""Receive a small file that comes alone in the process that has claimed it: a batch of Spark would take longer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.errors import MessageBoxUnavailable
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.pipelines.definition import Format
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_receive_adapter import FileReceiveAdapter
from postroom.receiving.task import ReceiveTask, Worker

_log = logging.getLogger(__name__)


class LoneFiles:
    """Receives files of one location, unless it has to wait: ``is_throttled`` is asked before each file. ``report``
    gets what became of it."""

    def __init__(
        self,
        worker: Worker,
        location: ReceiveLocation,
        home: Path,
        *,
        is_throttled: Callable[[], bool],
        report: Callable[[Sequence[ReceiveResult]], None],
    ) -> None:
        self._location = location
        self._is_throttled = is_throttled
        self._files = FileReceiveAdapter(worker.connection, location, home, share=())
        self._task = ReceiveTask(
            location=location,
            adapter=self._files,
            worker=worker,
            paced=True,
            process="pipeline process",
            report=report,
        )

    def receive(self, claim: FileClaim) -> bool:
        """Receive a file that is claimed and not numbered. Return False if the stream has to receive it."""
        if self._is_throttled():
            return False
        try:
            received = self._task.receive([self._files.to_incoming(claim)])
        except MessageBoxUnavailable:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            _log.warning("%s: %s is left to the stream: %s", self._location.name, claim.name, reason)
            return False
        return any(not result.unfinished for result in received)


def can_receive_lone_files(location: ReceiveLocation) -> bool:
    """Return True if nothing of a location could block or end the process: no components, no maps, and a format that is
    harmless. A worker of Spark isolates the others."""
    if location.watched_folder is None or location.adapter.reads_rows or location.has_maps:
        return False
    return isinstance(location.pipeline, Format) and location.pipeline.is_harmless
