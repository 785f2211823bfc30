"""ORS-10: running hosts take a change of the configuration within a second."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from tests.support.installation import Installation
from tests.support.reserved_port import is_listening, reserve_port
from tests.support.waiting import PATIENCE, wait_until

#: How many changes may be late, because the machine is busy, before three are in time.
ATTEMPTS = 12


def post(port: int) -> int:
    """Send an empty request, and return the status of the answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/orders", b"", timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_host_takes_changes_within_a_second(installation: Installation) -> None:
    """ORS-10: three changes in a row. Without a notification a host would look for changes every ten seconds."""
    with reserve_port() as port:
        installation.apply(
            f"""
            app.receive_port("Web").location(
                "web", adapters.HttpReceive("/orders", port={port}), pipeline=pipelines.PassThrough()
            )
            """
        )

        def change(action: str, status: int) -> float:
            """Return the seconds until the host answers with the status."""
            installation.run("location", action, "web")
            changed = time.monotonic()
            wait_until(lambda: post(port) == status, what=f"status {status}")
            return time.monotonic() - changed

        in_time = 0
        with installation.run_host():
            wait_until(lambda: is_listening(port), what="the listener")
            for number in range(ATTEMPTS):
                seconds = change(*(("enable", 202) if number % 2 else ("disable", 503)))
                in_time = in_time + 1 if seconds < 1 else 0
                if in_time == 3:
                    return
    raise AssertionError(f"none of {ATTEMPTS} changes was taken within a second")
