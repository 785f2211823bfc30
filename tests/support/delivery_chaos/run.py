"""Run hosts, publishers, callers and a consumer while everything fails at random times, then count.

python -m tests.support.delivery_chaos.run [--seed N] [--seconds N]
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import psycopg

from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import migrate
from tests.support.delivery_chaos.callers import RESPONSE_SECONDS
from tests.support.delivery_chaos.findings import count_repeats, find_problems
from tests.support.delivery_chaos.processes import Processes
from tests.support.delivery_chaos.receiver import UnreliableReceiver
from tests.support.delivery_chaos.record import Record
from tests.support.delivery_chaos.traffic import Traffic
from tests.support.folders import open_folder
from tests.support.http_receiver import HttpReceiver, http_receiver
from tests.support.installation import Installation
from tests.support.reserved_port import reserve_port
from tests.support.run_log import RunLog
from tests.support.waiting import wait_until

#: So many callers get a response without faults at the end.
_CALM_RESPONSES = 20
_APPLICATION = """
app.host("Front")
retry = Retry(count=1000, interval=0.2)

def http(path):
    return adapters.Http("{receiver}/" + path, timeout=2)

app.send_port("Europe", http("europe"), filter=Region == "EU", retry=retry)
app.send_port("Front", http("front"), filter=Total >= 50, retry=retry, host="Front")
app.send_port("Ordered", http("ordered"), filter=Priority == 1, retry=retry, ordered=True)
app.send_port("Ledger", http("ledger"), filter=Region == "US", retry=retry, ordered=True, host="Front")
app.receive_port("Quotes", two_way=True).location(
    "quotes",
    adapters.HttpReceive("/quotes", port={port}, response_timeout={seconds}),
    pipeline=pipelines.Json(promote={Priority: "priority"}),
    host="Front",
)
is_quote = BTS.ReceivePortName == "Quotes"
answer = pipelines.Json()
app.send_port(
    "Pricing", http("price"), two_way=True, filter=is_quote & (Priority == 8), receive_pipeline=answer, retry=retry
)
app.send_port(
    "Rates",
    http("rates"),
    two_way=True,
    filter=is_quote & (Priority == 7),
    receive_pipeline=answer,
    retry=retry,
    ordered=True,
)
is_answer = (BTS.SPName == "Pricing") | (BTS.SPName == "Rates")
app.send_port("Prices", adapters.File("prices"), filter=is_answer, retry=retry)
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="Seed of the random choices.")
    parser.add_argument("--seconds", type=float, default=600, help="How long faults happen.")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    with open_folder() as folder:
        problems = run(folder, seed=chosen.seed, seconds=chosen.seconds)
    return 1 if problems else 0


def run(home: Path, *, seed: int, seconds: float) -> list[str]:
    """Run everything in this folder. Return the problems that were found."""
    server = EmbeddedServer(home / "postgres")
    with http_receiver() as receiver, reserve_port() as port:
        try:
            server.start()
            migrate(server.url())
            with Installation(home, server.url()) as installation:
                return _Run(server, installation, receiver, port=port, seed=seed).run(seconds)
        finally:
            server.destroy()


class _Run:
    def __init__(
        self, server: EmbeddedServer, installation: Installation, receiver: HttpReceiver, *, port: int, seed: int
    ) -> None:
        self._log = RunLog()
        self._seed = seed
        self._record = Record()
        self._url = server.url()
        self._installation = installation
        address = receiver.url.rpartition("/")[0]
        values = {"{receiver}": address, "{port}": str(port), "{seconds}": f"{RESPONSE_SECONDS:g}"}
        installation.apply(reduce(lambda text, name: text.replace(name, values[name]), values, _APPLICATION))
        self._receiver = UnreliableReceiver(self._record, receiver, random.Random(seed))
        self._traffic = Traffic(self._record, url=self._url, port=port, seed=seed)
        self._processes = Processes(server=server, installation=installation, record=self._record)
        self._receiver.find_sender = self._processes.find_sender

    def run(self, seconds: float) -> list[str]:
        self._log.print(f"seed {self._seed}, {seconds:g} s of faults")
        self._processes.start()
        self._traffic.start()
        try:
            self._processes.fail(seconds, seed=self._seed, log=self._log)
            self._log.print("no more faults")
            self._receiver.become_reliable()
            self._processes.resume_all()
            self._wait_for_responses()
            self._traffic.stop_sending()
            self._log.print("every caller has an answer")
            self._wait_for_end()
            self._processes.stop()
            self._installation.run("check")
        except AssertionError as error:
            self._record.add_problem(str(error))
        finally:
            self._processes.resume_all()
            self._traffic.stop()
        responses = [json.loads(body) for body in self._installation.read_files("prices")]
        problems = find_problems(self._record, responses)
        self._report(problems)
        return problems

    def _wait_for_responses(self) -> None:
        """Wait until callers get responses again. A host that could not start meanwhile is started."""
        enough = self._record.answers["200"] + _CALM_RESPONSES

        def are_enough() -> bool:
            self._processes.keep_running()
            return self._record.answers["200"] >= enough

        wait_until(are_enough, what="responses without faults")

    def _wait_for_end(self) -> None:
        """Wait until all messages are delivered and deleted. Responses without a caller are terminated."""
        for queue in ("work_queue", "scheduled_queue"):
            self._wait_for_no_rows(queue)
        self._log.print("the queues are empty")
        left = self._installation.run_json("instance", "list", "--state", "suspended", "--limit", "100000")
        for code, count in Counter(instance["error_code"] for instance in left).items():
            # The caller of a response can be killed with its host, or disconnect.
            if code != "CORRELATION":
                self._record.add_problem(f"{count} messages are suspended with {code}")
        if left:
            self._installation.run("instance", "terminate", "--all", "--state", "suspended", "--yes")
        self._log.print(f"{len(left)} responses without a caller")
        for table in ("spool", "parts"):
            self._wait_for_no_rows(table)
        waiting = [found for found in self._installation.run_json("subscription", "list") if found["instance_id"]]
        if waiting:
            self._record.add_problem(f"{len(waiting)} subscriptions of callers are left")

    def _wait_for_no_rows(self, table: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            count = f"SELECT count(*) FROM messagebox.{table}"
            wait_until(lambda: connection.execute(count.encode()).fetchone() == (0,), what=f"an empty {table}")

    def _report(self, problems: list[str]) -> None:
        arrivals = sum(map(len, self._record.arrivals.values()))
        self._log.print(
            f"done with seed {self._seed}: "
            + ", ".join(f"{count} times {fault}" for fault, count in self._processes.done.items())
        )
        self._log.print(
            f"  {len(self._record.orders):,} orders, {arrivals:,} arrivals, {count_repeats(self._record):,} repeats;"
            f" answers to callers: {dict(sorted(self._record.answers.items()))}"
        )
        for problem in problems:
            self._log.print(f"  found: {problem}")
        if not problems:
            self._log.print("  found: nothing lost, every repeat explained, order kept, every answer right")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
