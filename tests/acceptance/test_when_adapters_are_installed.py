"""DEQ-17, INS-14: adapters of a package, which decide about rejected interchanges, or deliver slowly."""

from __future__ import annotations

from pathlib import Path

import postroom
from postroom import Property
from tests.support.adapter_package import adapter_package
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
MAILBOX = '''
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from postroom import BTS, Context
from postroom.adapters import Committed, Incoming, ReceiveAdapter, ReceiveDefinition, Refused
from postroom.message import FileSlice


class Mailbox(ReceiveDefinition):
    """Receives the files of a folder. It returns to their senders those that the pipeline rejects."""

    transport_type: ClassVar[str] = "MAILBOX"
    kind: Literal["mailbox"] = "mailbox"
    folder: str

    def problems(self) -> list[str]:
        return []

    def address(self, home: Path) -> str:
        return (home / self.folder).as_uri()

    def make_receiver(self, home: Path) -> ReceiveAdapter:
        return MailboxReceiver(home / self.folder)


class MailboxReceiver(ReceiveAdapter):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def poll(self, limit: int) -> Sequence[Incoming]:
        context = Context().write(BTS.ActionOnFailure, 0)
        return [
            Incoming(key=file.name, body=FileSlice(path=file, length=file.stat().st_size), context=context, token=file)
            for file in sorted(self.folder.iterdir())
            if not file.name.startswith(".")
        ]

    def clean_up(self, committed: Sequence[Committed]) -> None:
        for one in committed:
            one.incoming.token.rename(
                self.folder.with_name("suspended" if one.suspended else "published") / one.incoming.key
            )

    def refuse(self, refused: Sequence[Refused]) -> None:
        for one in refused:
            reason = self.folder.with_name("returned") / one.incoming.key
            reason.write_text(str(one.failure))
            one.incoming.token.unlink()
'''
GATE = '''
import threading
from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters import Attempt, SendAdapter, SendDefinition
from postroom.clock import Clock, system_clock
from postroom.message import Message

passes = threading.Semaphore(0)
sent: list[bytes] = []


class Gate(SendDefinition):
    """Delivers a message for each pass."""

    transport_type: ClassVar[str] = "GATE"
    kind: Literal["gate"] = "gate"

    def problems(self) -> list[str]:
        return []

    def address(self, home: Path) -> str:
        return "gate:"

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        return GateSender()


class GateSender(SendAdapter):
    def send(self, message: Message, attempt: Attempt) -> None:
        passes.acquire()
        sent.append(message.data)
'''


def test_an_adapter_decides_about_the_interchanges_that_the_pipeline_rejects(
    installation: Installation, tmp_path: Path
) -> None:
    """INS-14, PUB-10, PUB-11: a rejected interchange is returned to its sender, and not suspended. One without a
    subscriber is, and one that was received with them is published."""
    for folder in ("box", "returned", "published", "suspended"):
        (installation.home / folder).mkdir()
    with adapter_package(tmp_path, MAILBOX, mailbox="Mailbox"):
        installation.apply(
            """
            from acme import Mailbox
            orders = pipelines.Json(promote=PROMOTE)
            app.receive_port("In").location("box", Mailbox(folder="box"), pipeline=orders)
            app.send_port("Europe", adapters.File("out"), filter=Region == "EU")
            """
        )
        installation.drop_file("1", b'{"region": ', "box")
        installation.drop_file("2", b'{"region": "MARS"}', "box")
        installation.drop_file("3", b'{"region": "EU"}', "box")
        with installation.run_host():
            assert installation.wait_for_files("out", 1) == [b'{"region": "EU"}']
            [returned] = installation.wait_for_files("returned", 1)
            wait_until(lambda: installation.read_files("box") == [], what="an empty box")
        assert b"JSON" in returned
        assert installation.read_files("published") == [b'{"region": "EU"}']
        assert installation.read_files("suspended") == [b'{"region": "MARS"}']
        [suspended] = installation.list_suspended("resumable")
        assert suspended["error_code"] == "ROUTING"
        assert installation.run("message", "body", suspended["instance_id"]) == '{"region": "MARS"}'


def test_a_slow_handler_has_no_more_messages_in_memory_than_its_high_watermark(
    installation: Installation, tmp_path: Path
) -> None:
    """DEQ-17, SND-19: five messages are in progress, and eight wait in memory. Another five have to leave before the
    host claims more."""
    with adapter_package(tmp_path, GATE, gate="Gate") as gate:
        installation.apply(
            """
            from acme import Gate
            from postroom import Handler
            slow = Handler("gate", "send", high_watermark=8, low_watermark=4)
            app.host("Main", handlers=[slow, Handler("file", "send")])
            app.send_port("Slow", Gate(), filter=Region == "EU")
            app.send_port("Fast", adapters.File("fast"), filter=Region == "US")
            """
        )
        with postroom.connect(installation.database) as client, installation.run_host():
            fast: list[bytes] = []

            def publish(region: str, count: int) -> None:
                for number in range(count):
                    client.publish(f"{region} {number}".encode(), promoted={Region: region})

            def wait_for_claims() -> None:
                """Wait for a message that is claimed after all others that the host may claim."""
                fast.append(f"fast {len(fast)}".encode())
                client.publish(fast[-1], promoted={Region: "US"})
                installation.wait_for_files("fast", len(fast))

            def count_claimed() -> int:
                return len(installation.run_json("instance", "list", "--port", "Slow", "--state", "active"))

            try:
                publish("EU", 5)
                wait_until(lambda: count_claimed() == 5, what="five messages in progress")
                for _ in range(15):
                    publish("EU", 1)
                    wait_for_claims()
                assert count_claimed() == 13
                gate.passes.release(4)
                wait_until(lambda: count_claimed() == 9, what="four messages sent")
                wait_for_claims()
                assert count_claimed() == 9
                gate.passes.release()
                wait_for_claims()
                wait_until(lambda: count_claimed() > 9, what="more messages in memory")
            finally:
                gate.passes.release(100)
            wait_until(lambda: len(gate.sent) == 20, what="all messages")
            wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")
