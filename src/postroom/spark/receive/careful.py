"""One interchange at a time, after a task has failed: the one that ends its worker is found, and suspended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from postroom.agent.receiving import Received
from postroom.errors import PipelineFailure
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.pipelines.stages import FORMAT_SECONDS
from postroom.spark import careful
from postroom.spark.login import Login


def in_worker(location: ReceiveLocation, grace: float) -> AbstractContextManager[bool]:
    """Around all that a task does. Tells whether it has to be careful: another attempt has failed."""
    return careful.in_worker(float(location.pipeline.get("seconds") or FORMAT_SECONDS) + grace)


def begin_carefully(
    login: Login,
    *,
    note: Callable[[], int],
    receive: Callable[[], list[Received]],
    refuse: Callable[[PipelineFailure], list[Received]],
    take_back: Callable[[Connection], None],
) -> list[Received]:
    """Receives one interchange, after ``note`` has written down for good how often it was begun; or has it refused.
    ``take_back`` undoes the note."""

    def forget() -> None:
        with login.connect("receive") as connection:
            take_back(connection)

    return careful.begin_carefully(note=note, work=receive, refuse=lambda: refuse(_ended_workers()), take_back=forget)


def _ended_workers() -> PipelineFailure:
    return PipelineFailure(
        "The worker that received it died, whenever it was tried.",
        why="A worker dies if a library crashes, if it uses more memory than there is, or if it does not answer for"
        " longer than the pipeline allows; the log of the pipeline may tell which.",
        hint="Correct the message and send it again, or correct the component and resume.",
    )
