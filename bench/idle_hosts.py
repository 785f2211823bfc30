"""CPU of five idle hosts and all processes of their PostgreSQL server.

    python -m bench.idle_hosts

The hosts have default settings and listen for requests for their metrics. One of them has an HTTP receive location.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import ExitStack

from bench.host import find_server_processes, host_process
from bench.http_client import find_free_port
from bench.idle import measure_shares
from bench.messagebox import measured_box
from bench.ratios import Result
from postroom import adapters, pipelines
from postroom.messagebox.migrate import create_host

_HOSTS = 5
_ROUNDS = 5
#: The time after the start in which modules are loaded and connections are opened.
_SETTLE_SECONDS = 5.0
_MONITORED_HOST = """
import sys
from pathlib import Path
from postroom.hosts import run_host
from postroom.monitoring.server import LOOPBACK, MonitoringServer
with MonitoringServer(LOOPBACK, 0) as monitoring:
    run_host(sys.argv[1], sys.argv[2], Path(sys.argv[3]), as_role=True, monitoring=monitoring)
"""


def measure() -> Result:
    """Return the median percentage of a core."""
    names = ["Default", *(f"Idle{number}" for number in range(1, _HOSTS))]
    adapter = adapters.HttpReceive("/orders", port=find_free_port())
    with measured_box(adapter=adapter, pipeline=pipelines.PassThrough()) as box, ExitStack() as stack:
        with box.connection.transaction():
            for name in names[1:]:
                create_host(box.connection, name)
        hosts = [stack.enter_context(host_process(box, name, _MONITORED_HOST)) for name in names]
        time.sleep(_SETTLE_SECONDS)
        shares = [measure_shares([*hosts, *find_server_processes(box)]) for _ in range(_ROUNDS)]
    totals = [float(sum(share.values())) for share in shares]
    middle = sorted(shares, key=lambda share: sum(share.values()))[_ROUNDS // 2]
    return Result(
        name=f"CPU of {_HOSTS} idle hosts with their PostgreSQL, listeners and metrics on, in percent of a core,"
        " 10 s five times",
        group="D",
        measured=statistics.median(totals),
        bar=3,
        at_most=True,
        spread=(min(totals), max(totals)),
        detail="; ".join(f"{name} {share:.1f}" for name, share in sorted(middle.items())),
    )


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
