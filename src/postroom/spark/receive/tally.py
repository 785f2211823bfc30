"""What a task says of the interchanges that it was given, and what it does when one of them cannot be received."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg
import pyarrow as pa

from postroom.agent.interchange import Interchange
from postroom.agent.receiving import Received
from postroom.agent.unforeseen import unforeseen
from postroom.messagebox.configuration import ReceiveLocation
from postroom.pipelines.world import is_of_the_world
from postroom.spark.executor import Executor

_COUNTED = ("files", "published", "suspended", "routed", "dropped", "empty")
#: A task's rows: what became of each interchange.
TALLY_SCHEMA = ", ".join(["interchange_id string", *(f"{name} long" for name in _COUNTED)])
_TALLY = pa.schema([("interchange_id", pa.string()), *((name, pa.int64()) for name in _COUNTED)])

#: Errors of the database that are about the content of one interchange and would come again with it.
_ABOUT_CONTENT = (psycopg.DataError, psycopg.IntegrityError)

Given = TypeVar("Given")


def tally_of(received: Sequence[Received]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "interchange_id": str(one.interchange_id),
                "files": int(not one.unfinished),
                **{name: int(getattr(one, name)) for name in _COUNTED[1:]},
            }
            for one in received
        ],
        schema=_TALLY,
    )


def publish_or_put_aside(
    given: Sequence[Given],
    receive: Callable[[Sequence[Given]], dict[uuid.UUID, Received]],
    put_aside: Callable[[Given, Exception], Received | None],
) -> dict[uuid.UUID, Received]:
    """Receives them together; if one of them makes that fail, each by itself, and that one is put aside: suspended, or
    kept where it is if nothing came of that.

    Raises what is not about any of them: the MessageBox does not answer.
    """
    try:
        return receive(given)
    except Exception as error:
        if not is_about_content(error):
            raise
        if len(given) > 1:
            # One of them is to blame. The others must not wait for it.
            one_by_one = (publish_or_put_aside([one], receive, put_aside) for one in given)
            return {interchange_id: one for each in one_by_one for interchange_id, one in each.items()}
        suspended = put_aside(given[0], error)
        return {} if suspended is None else {suspended.interchange_id: suspended}


def suspend(
    executor: Executor, location: ReceiveLocation, interchange: Callable[[], Interchange], error: Exception
) -> Received | None:
    """Suspends an interchange that made its task fail, as it came; None if that cannot be done either."""
    try:
        return executor.receiver.refuse(location, interchange(), unforeseen(error))
    except Exception as another:
        if not is_about_content(another):
            raise
        return None


def is_about_content(error: Exception) -> bool:
    """Whether an interchange, rather than the MessageBox or the machine, is why receiving failed."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, _ABOUT_CONTENT)
    return not is_of_the_world(error)
