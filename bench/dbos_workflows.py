"""DBOS Transact as a peer: workflows that receive one message and perform one step. Run in processes of its own.

python -m bench.dbos_workflows enqueue URL COUNT         # waiting workflows, each with its message
python -m bench.dbos_workflows work URL NAME THREADS     # a worker, until it is terminated
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, DBOSClient, DBOSConfig, WorkflowHandle

_QUEUE, _APPLICATION, _VERSION = "bench", "bench", "1"
_BODY = "x" * 1000
_ENQUEUING_THREADS = 8


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
def count(text: str) -> int:
    return len(text)


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def receive() -> int:
    return int(count(DBOS.recv()))


def enqueue(url: str, number: int) -> None:
    """Enqueue workflows, and send a message to each. Nothing runs yet."""
    config: DBOSConfig = {"name": _APPLICATION, "system_database_url": url, "application_version": _VERSION}
    config["log_level"] = "ERROR"
    DBOS(config=config)
    DBOS.listen_queues([])
    DBOS.launch()
    DBOS.register_queue(_QUEUE, polling_interval_sec=0.01)
    client = DBOSClient(system_database_url=url)

    def start(_: int) -> None:
        handle: WorkflowHandle[None] = client.enqueue(
            {"queue_name": _QUEUE, "workflow_name": receive.__qualname__, "app_version": _VERSION}
        )
        client.send(handle.workflow_id, _BODY)

    with ThreadPoolExecutor(_ENQUEUING_THREADS) as threads:
        list(threads.map(start, range(number)))
    DBOS.destroy()


def work(url: str, name: str, threads: int) -> None:
    """Run workflows until the process is terminated."""
    config: DBOSConfig = {
        "name": _APPLICATION,
        "system_database_url": url,
        "application_version": _VERSION,
        "executor_id": name,
        "log_level": "ERROR",
        "max_executor_threads": threads,
        "sys_db_pool_size": threads + 2,
    }
    DBOS(config=config)
    DBOS.listen_queues([_QUEUE])
    DBOS.launch()
    DBOS.register_queue(_QUEUE, worker_concurrency=threads, polling_interval_sec=0.01)
    threading.Event().wait()


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["enqueue", url, number]:
            enqueue(url, int(number))
        case ["work", url, name, threads]:
            work(url, name, int(threads))


if __name__ == "__main__":
    main(sys.argv[1:])
