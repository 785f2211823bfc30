"""The programs of a run: a buyer that publishes orders, and suppliers that answer requests and purchases."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import psycopg

import postroom
from postroom.errors import PublishFailed, RoutingFailure, Unavailable
from postroom.examples.procurement.app import Kind, OrderId
from postroom.message import Message

SUPPLIERS = ("acme", "bolt")
_UNANSWERED = """
    SELECT kind, number, array_agg(message_id) FROM account.documents
     WHERE kind IN ('request', 'purchase') AND NOT answered GROUP BY kind, number
"""
_ANSWERED = "UPDATE account.documents SET answered = true WHERE message_id = ANY (%s)"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a supplier offers, and how long after the request."""

    supplier: str
    price: int
    delay: float


@dataclass(frozen=True, kw_only=True)
class OrderPlan:
    """What happens to an order. Some offers are late, and some never come."""

    number: int
    wait_seconds: float
    offers: tuple[Offer, ...]
    is_accepted: bool

    @classmethod
    def choose(cls, number: int, *, seed: int, longest_wait: float) -> OrderPlan:
        generator = random.Random(f"{seed} order {number}")
        wait = generator.uniform(1, longest_wait)
        offers = []
        for supplier in SUPPLIERS:
            delay = generator.choices(
                (generator.uniform(0, 1), generator.uniform(wait - 0.5, wait + 1.5), None), (0.75, 0.2, 0.05)
            )[0]
            if delay is not None:
                offers.append(Offer(supplier=supplier, price=generator.randrange(100), delay=delay))
        return cls(number=number, wait_seconds=wait, offers=tuple(offers), is_accepted=generator.random() < 0.8)


@dataclass(kw_only=True)
class PublishedDocument:
    """A document that a program has published."""

    started: float
    ended: float
    is_routed: bool
    """False if nobody subscribed to it, so that nothing was published."""


@dataclass(kw_only=True)
class Programs:
    """Threads that publish the orders during ``seconds``, and answer until ``stop``."""

    url: str
    plans: Mapping[int, OrderPlan]
    seconds: float
    #: By key: "order 7", "offer 7 acme", "confirmation 7".
    published: dict[str, PublishedDocument] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: The answers that are to be published, by time.
    _agenda: list[tuple[float, int, str, Mapping[str, object]]] = field(default_factory=list)
    _planned: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._run, args=(work,)) for work in (self._publish_orders, self._answer)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def unpublished_count(self) -> int:
        """The number of orders and planned answers that are not published yet."""
        return len(self.plans) + len(self._planned) - len(self.published)

    def _run(self, work: Callable[[postroom.Client], None]) -> None:
        try:
            with postroom.connect(self.url) as client:
                work(client)
        except Exception:
            self.problems.append(f"{work.__name__.strip('_')} failed:\n{traceback.format_exc()}")

    def _publish_orders(self, client: postroom.Client) -> None:
        pause = self.seconds / len(self.plans)
        for plan in self.plans.values():
            if self._stop.wait(pause):
                return
            document = {"kind": "order", "order": str(plan.number), "wait_seconds": plan.wait_seconds}
            self._publish(client, f"order {plan.number}", document)

    def _answer(self, client: postroom.Client) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self.url, autocommit=True) as connection:
                    while not self._stop.wait(0.02):
                        for kind, number, ids in connection.execute(_UNANSWERED).fetchall():
                            self._plan_answers(kind, number)
                            connection.execute(_ANSWERED, (ids,))
                        self._publish_due(client)
            except psycopg.OperationalError:
                self._stop.wait(0.1)

    def _plan_answers(self, kind: str, number: int) -> None:
        """Plan the answers to the requests of an order, which are published together, or to its purchase."""
        plan, now = self.plans[number], time.monotonic()
        if kind == "purchase":
            document = {"kind": "confirmation", "order": str(number), "accepted": plan.is_accepted}
            self._add(now, f"confirmation {number}", document)
            return
        for offer in plan.offers:
            document = {"kind": "offer", "order": str(number), "supplier": offer.supplier, "price": offer.price}
            self._add(now + offer.delay, f"offer {number} {offer.supplier}", document)

    def _add(self, time: float, key: str, document: Mapping[str, object]) -> None:
        if key not in self._planned:
            self._planned.add(key)
            heapq.heappush(self._agenda, (time, next(self._numbers), key, document))

    def _publish_due(self, client: postroom.Client) -> None:
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            _, _, key, document = heapq.heappop(self._agenda)
            self._publish(client, key, document)

    def _publish(self, client: postroom.Client, key: str, document: Mapping[str, object]) -> None:
        """Publish a document with an idempotency key, until there is an answer."""
        promoted = {Kind: document["kind"], OrderId: document["order"]}
        message = Message.of(json.dumps(document).encode(), promoted=promoted)
        started = time.time()
        while True:
            try:
                client.publish_many([message], key=key)
                is_routed = True
            except Unavailable:
                time.sleep(0.1)
                continue
            except PublishFailed as error:
                if not all(isinstance(result.failure, RoutingFailure) for result in error.results):
                    raise
                is_routed = False
            self.published[key] = PublishedDocument(started=started, ended=time.time(), is_routed=is_routed)
            return
