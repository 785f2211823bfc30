"""The callers of a run: clients of the two-way HTTP location, and programs that send requests."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

import postroom
from postroom.errors import NoResponse, ResponseTimeout, Unavailable
from tests.support.delivery_chaos.record import Call, Record

HTTP_CALLERS, PROGRAMS = 6, 2
#: Calls have higher numbers than orders.
_FIRST_CALL = 10_000_000
#: Callers pause for up to so many seconds between two calls.
PAUSE = 0.2
#: A caller gets an error if there is no response within this time.
RESPONSE_SECONDS = 30.0
#: A caller that hears nothing for so long was neither answered nor told.
_PATIENCE = 90.0
#: A caller with a key repeats its request after these answers.
_REPEATED = ("closed", "refused", "503", "504", "unavailable")


@dataclass(frozen=True, kw_only=True)
class Callers:
    """Ask for prices until ``stop``. A call is sent by the ordered port `Rates`, or by `Pricing`."""

    record: Record
    url: str
    port: int
    stop: threading.Event

    def call_by_http(self, caller: int, generator: random.Random) -> None:
        def ask(call: Call) -> str:
            if not call.answers and generator.random() < 0.05:
                return self._hang_up(call)
            return self._ask(call)

        self._call(caller, generator, ask)

    def call_from_program(self, program: int, generator: random.Random) -> None:
        with postroom.connect(self.url) as client:
            self._call(HTTP_CALLERS + program, generator, lambda call: self._request(client, call))

    def _call(self, caller: int, generator: random.Random, ask: Callable[[Call], str]) -> None:
        """Ask for one price after the other. Half of the calls have an idempotency key: they are repeated until they
        have a response, sometimes after that, and once more at the end."""
        with_key: list[Call] = []

        def repeat(call: Call) -> None:
            while ask(call) in _REPEATED and call.key is not None:
                time.sleep(PAUSE)

        for number in itertools.count(_FIRST_CALL + caller, HTTP_CALLERS + PROGRAMS):
            if self.stop.is_set():
                break
            key = f"call {number}" if generator.random() < 0.5 else None
            call = Call(number=number, key=key, is_from_program=caller >= HTTP_CALLERS)
            self.record.add_call(call)
            repeat(call)
            if call.key is not None:
                with_key.append(call)
            if with_key and generator.random() < 0.1:
                repeat(generator.choice(with_key))
            self.stop.wait(generator.uniform(0, PAUSE))
        for call in with_key:
            repeat(call)

    # -- clients of the HTTP location ----------------------------------------------------------------------------

    def _ask(self, call: Call) -> str:
        """Send a request over HTTP. Return the status, or what happened instead."""
        started, document = time.monotonic(), None
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.connect()
            try:
                self._send(connection, call)
                response = connection.getresponse()
                body = response.read()
                kind = str(response.status)
                document = json.loads(body) if response.status == 200 else body.decode()
            except TimeoutError:
                kind = "silence"
            except (OSError, HTTPException):
                kind = "closed"
        except ConnectionError:
            kind = "refused"
        finally:
            connection.close()
        self.record.add_answer(call, kind, started, document)
        if kind == "refused":
            self.stop.wait(0.1)
        return kind

    def _hang_up(self, call: Call) -> str:
        """Send a request and close the connection without waiting for the response."""
        started = time.monotonic()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            self._send(connection, call)
        except OSError:
            pass
        finally:
            connection.close()
        self.record.add_answer(call, "hung up", started)
        return "hung up"

    def _send(self, connection: HTTPConnection, call: Call) -> None:
        headers = {} if call.key is None else {"Idempotency-Key": call.key}
        body = {"number": call.number, "priority": 7 if is_ordered(call) else 8}
        connection.request("POST", "/quotes", json.dumps(body), headers)

    # -- programs ------------------------------------------------------------------------------------------------

    def _request(self, client: postroom.Client, call: Call) -> str:
        """Send a request from a program. Return "200", or the name of the error."""
        started, document = time.monotonic(), None
        body = json.dumps({"number": call.number}).encode()
        try:
            to = "Rates" if is_ordered(call) else "Pricing"
            response = client.request(body, to=to, key=call.key, timeout=RESPONSE_SECONDS)
            assert response.data is not None
            kind, document = "200", json.loads(response.data)
        except Unavailable:
            kind = "unavailable"
        except ResponseTimeout:
            kind = "504"
        except NoResponse as error:
            kind, document = "no response", str(error)
        self.record.add_answer(call, kind, started, document)
        return kind


def is_ordered(call: Call) -> bool:
    return call.number % 3 == 0
