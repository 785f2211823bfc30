"""The programs of a run: publishers, a consumer, and callers of two-way ports."""

from __future__ import annotations

import json
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import postroom
from postroom.errors import ClaimLost, Unavailable
from postroom.message import Message
from tests.support.box import Priority, Region, Total
from tests.support.delivery_chaos.callers import HTTP_CALLERS, PAUSE, PROGRAMS, Callers
from tests.support.delivery_chaos.record import Order, Record

PUBLISHERS = 3
#: The subscription of the consumer.
CONSUMER = "program"


class Traffic:
    """Threads that publish and call until ``stop_sending``, and consume until ``stop``."""

    def __init__(self, record: Record, *, url: str, port: int, seed: int) -> None:
        self._record = record
        self._url = url
        self._is_subscribed = threading.Event()
        self._stop_sending = threading.Event()
        self._stop = threading.Event()
        callers = Callers(record=record, url=url, port=port, stop=self._stop_sending)
        workers: list[tuple[Callable[[int, random.Random], None], int]] = [
            *((self._publish, number) for number in range(PUBLISHERS)),
            *((callers.call_by_http, number) for number in range(HTTP_CALLERS)),
            *((callers.call_from_program, number) for number in range(PROGRAMS)),
        ]
        self._senders = [
            threading.Thread(target=self._run, args=(work, number, random.Random(f"{seed} {work.__name__} {number}")))
            for work, number in workers
        ]
        self._consumer = threading.Thread(target=self._run, args=(self._consume, 0, random.Random(seed)))

    def start(self) -> None:
        """Start all threads. Publishers start after the consumer has subscribed: some orders match nothing else."""
        self._consumer.start()
        assert self._is_subscribed.wait(60)
        for thread in self._senders:
            thread.start()

    def stop_sending(self) -> None:
        """Stop publishers and callers. Return when the last caller has its answer, after the last fault."""
        self._stop_sending.set()
        for thread in self._senders:
            thread.join()

    def stop(self) -> None:
        self.stop_sending()
        self._stop.set()
        self._consumer.join()

    def _run(self, work: Callable[[int, random.Random], None], number: int, generator: random.Random) -> None:
        try:
            work(number, generator)
        except Exception:
            self._record.add_problem(f"{work.__name__.strip('_')} {number} failed:\n{traceback.format_exc()}")

    # -- publishers ----------------------------------------------------------------------------------------------

    def _publish(self, publisher: int, generator: random.Random) -> None:
        """Publish orders, alone and together. Each publish has a key and is repeated until it is accepted."""
        with self._connect() as client:
            number = publisher
            while not self._stop_sending.is_set():
                orders = []
                started = time.monotonic()
                for _ in range(generator.choice((1, 1, 1, 2, 8))):
                    orders.append(
                        Order(
                            number=number,
                            publisher=publisher,
                            region=generator.choice(("EU", "US")),
                            priority=generator.randrange(1, 4),
                            total=generator.randrange(100),
                        )
                    )
                    number += PUBLISHERS
                messages = [make_message(order) for order in orders]
                while True:
                    try:
                        client.publish_many(messages, key=f"orders {orders[0].number}")
                        break
                    except Unavailable:
                        self._stop.wait(0.1)
                ended = time.monotonic()
                self._record.add_orders([replace(order, started=started, ended=ended) for order in orders])
                self._stop_sending.wait(generator.uniform(0, PAUSE))

    # -- the consumer --------------------------------------------------------------------------------------------

    def _consume(self, _: int, generator: random.Random) -> None:
        with self._connect() as client:
            subscription = client.subscribe(CONSUMER, "Orders.Total < 50", lease=timedelta(seconds=5))
            self._is_subscribed.set()
            while not self._stop.is_set():
                try:
                    received = subscription.receive(timeout=0.5)
                    if received is not None:
                        assert received.message.body is not None
                        number = json.loads(received.message.body.data)["number"]
                        arrival = self._record.add_arrival(CONSUMER, number)
                        # The message is complete or not if the connection is lost meanwhile.
                        arrival.is_accepted = True
                        received.complete()
                except ClaimLost:
                    arrival.is_accepted = False  # it is received again
                except Unavailable:
                    self._stop.wait(0.05)
            subscription.close()

    @contextmanager
    def _connect(self) -> Iterator[postroom.Client]:
        with postroom.connect(self._url) as client:
            yield client


def make_message(order: Order) -> Message:
    body = json.dumps({"number": order.number, "publisher": order.publisher}).encode()
    return Message.of(body, promoted={Region: order.region, Priority: order.priority, Total: Decimal(order.total)})
