"""The programs of a run: publishers, a consumer, and callers of the two-way port."""

from __future__ import annotations

import json
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from http.client import HTTPConnection, HTTPException

import postroom
from postroom.errors import ClaimLost, Unavailable
from postroom.message import Message
from tests.support.box import Priority, Region, Total
from tests.support.delivery_chaos.record import Order, Record

PUBLISHERS, CALLERS = 3, 6
#: The subscription of the consumer.
CONSUMER = "program"
#: Publishers and callers pause for up to so many seconds between two calls.
_PAUSE = 0.2
#: A caller that hears nothing for so long was neither answered nor told. The two-way port answers after 30 s.
_CALLER_PATIENCE = 90.0


class Traffic:
    """Threads that publish and call until ``stop_sending``, and consume until ``stop``."""

    def __init__(self, record: Record, *, url: str, port: int, seed: int) -> None:
        self._record = record
        self._url = url
        self._port = port
        self._is_subscribed = threading.Event()
        self._stop_sending = threading.Event()
        self._stop = threading.Event()
        workers: list[tuple[Callable[[int, random.Random], None], int]] = [
            *((self._publish, number) for number in range(PUBLISHERS)),
            *((self._call, number) for number in range(CALLERS)),
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
        """Stop publishers and callers. Return when the last caller has its answer."""
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
                self._record.add_orders(orders)
                self._stop_sending.wait(generator.uniform(0, _PAUSE))

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

    # -- callers -------------------------------------------------------------------------------------------------

    def _call(self, caller: int, generator: random.Random) -> None:
        """Ask for prices. Some callers have an idempotency key and repeat a request whose connection was closed."""
        number = caller
        while not self._stop_sending.is_set():
            key = f"call {number}" if generator.random() < 0.5 else None
            if generator.random() < 0.05:
                self._hang_up(number, key)
            else:
                answer = self._ask(number, key)
                while answer in ("closed", "503") and key is not None:
                    self._stop.wait(0.2)
                    answer = self._ask(number, key)
                self._record.add_answer(answer)
            number += CALLERS
            self._stop_sending.wait(generator.uniform(0, _PAUSE))

    def _ask(self, number: int, key: str | None) -> str:
        """Return the status, "closed" for a closed connection, or "refused" if the host does not listen."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_CALLER_PATIENCE)
        try:
            try:
                connection.connect()
            except ConnectionError:
                self._stop.wait(0.1)
                return "refused"
            self._send(connection, number, key)
            response = connection.getresponse()
            body = response.read()
        except TimeoutError:
            self._record.add_problem(f"caller {number} heard nothing for {_CALLER_PATIENCE:g} s")
            return "silence"
        except (OSError, HTTPException):
            return "closed"
        finally:
            connection.close()
        if response.status == 200 and json.loads(body) != {"number": number, "price": 2 * number}:
            self._record.add_problem(f"caller {number} got {body!r}")
        return str(response.status)

    def _hang_up(self, number: int, key: str | None) -> None:
        """Send a request and close the connection without waiting for the answer."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_CALLER_PATIENCE)
        try:
            self._send(connection, number, key)
        except OSError:
            pass
        finally:
            connection.close()
        self._record.add_answer("hung up")

    def _send(self, connection: HTTPConnection, number: int, key: str | None) -> None:
        headers = {} if key is None else {"Idempotency-Key": key}
        connection.request("POST", "/quotes", json.dumps({"number": number}), headers)


def make_message(order: Order) -> Message:
    body = json.dumps({"number": order.number, "publisher": order.publisher}).encode()
    return Message.of(body, promoted={Region: order.region, Priority: order.priority, Total: Decimal(order.total)})
