"""Run random orchestrations on hosts that are killed, then replay their journals in another process.

python -m tests.support.killed_random_orchestrations [--seed N] [--programs N] [--kills N]

Every host process and the replay have hash seeds of their own. What the replay sends is what was published, and the
result of each step is at its place.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from postroom.message import Message
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.maintenance.check import check
from postroom.operations.orchestrations.journals import save_journal
from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.orchestration_host import start_orchestration_host
from tests.support.orchestrations import apply_orchestrations
from tests.support.random_orchestrations import (
    KINDS,
    choose_program,
    find_misplaced_results,
    make_input,
    make_start,
)
from tests.support.replayed_journals import replay_elsewhere
from tests.support.run_log import RunLog
from tests.support.waiting import wait_until

#: What is sent stays in the suspended queue, because the ports are stopped.
_APPLICATION = """
from tests.support.random_orchestrations import SETS, run_program_and_wait

app.send_port("A", adapters.Null(), host="Default", state="stopped")
app.send_port("B", adapters.Null(), host="Default", state="stopped")
app.send_port("Nobody", adapters.Null(), host="Default", state="bound")
app.orchestration(activate=Kind == "start", correlations=list(SETS.values()), host="Default")(run_program_and_wait)
"""
_SENT = """
    SELECT s.message_id::text, convert_from(p.body, 'UTF8')
      FROM suspended_queue q JOIN spool s USING (message_id) JOIN parts p ON p.part_id = s.body_part_id
"""
_BUSY = """
    SELECT (SELECT count(*) FROM work_queue WHERE service_class = 'orchestrations')
         + (SELECT count(*) FROM orchestration_instances
             WHERE suspended_at IS NULL AND (claim_id IS NOT NULL OR ready_seq IS NOT NULL OR wake_at IS NOT NULL))
"""
_HOSTS = 2


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="Seed of the random choices.")
    parser.add_argument("--programs", type=int, default=500, help="The number of instances.")
    parser.add_argument("--kills", type=int, default=30, help="How often a host is killed.")
    chosen = parser.parse_args(arguments)
    log = RunLog()
    log.print(f"seed {chosen.seed}: {chosen.programs} random orchestrations, {chosen.kills} kills")
    with open_folder() as folder:
        server = EmbeddedServer(folder / "postgres")
        try:
            server.start()
            with Databases(server) as databases, databases.open_box() as box:
                problems = run(box, folder, seed=chosen.seed, programs=chosen.programs, kills=chosen.kills)
        finally:
            server.destroy()
    for problem in problems:
        log.print(problem)
    log.print(f"{len(problems)} problems")
    return 1 if problems else 0


def run(box: Box, folder: Path, *, seed: int, programs: int, kills: int) -> list[str]:
    """Run programs, and return the problems that were found."""
    apply_orchestrations(box, folder, _APPLICATION)
    chance = random.Random(seed)
    keys = [f"k{number}" for number in range(programs)]
    starts = [make_start(choose_program(chance), key) for key in keys]
    inputs = [make_input(chance.choice(KINDS), number, chance.choice(keys)) for number in range(3 * programs)]
    with ExitStack() as stack:
        hosts = [start_orchestration_host(stack, box.url, folder) for _ in range(_HOSTS)]

        def publish(messages: list[Message], kills: int) -> None:
            """Publish messages, and kill a host after each part of them."""
            for number in range(kills):
                box.agent(warm=False).publish(messages[number::kills])
                time.sleep(chance.uniform(0.1, 0.8))  # the time of the kill is random
                hosts[number % _HOSTS].kill()
                hosts[number % _HOSTS] = start_orchestration_host(stack, box.url, folder)

        publish(starts, kills // 2)
        # From here on they are subscribed to the inputs.
        wait_until(lambda: box.count("started orchestrations") == programs, what="all started")
        publish(inputs, kills - kills // 2)
        wait_until(lambda: box.one(_BUSY) == 0, what="all instances wait")
    return [*_find_problems(box, folder, programs), *map(str, check(box.connection))]


def _find_problems(box: Box, folder: Path, programs: int) -> list[str]:
    rows = box.connection.execute("SELECT instance_id, error_code, error_description FROM orchestration_instances")
    problems = []
    instances: list[uuid.UUID] = []
    for instance_id, code, description in rows:
        instances.append(instance_id)
        if code is not None:
            problems.append(f"{instance_id} is suspended: {code}: {description}")
    if len(instances) != programs:
        problems.append(f"there are {len(instances)} instances of {programs} programs")
    published = sorted(box.connection.execute(_SENT).fetchall())
    problems += [f"a result is at another place: {text}" for text in find_misplaced_results(b for _, b in published)]
    journals = [save_journal(box.connection, one, folder / f"{one}.json") for one in instances]
    sent: list[tuple[str, str]] = []
    for instance_id, replayed in zip(instances, replay_elsewhere(journals), strict=True):
        if isinstance(replayed, str):
            problems.append(f"{instance_id}: {replayed}")
        else:
            sent += [(id, body) for id, body in replayed]
    if sorted(sent) != published:
        problems.append(f"the replay sends other messages: {set(sent).symmetric_difference(published)}")
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
