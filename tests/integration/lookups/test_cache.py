"""The cache of a process: an update is seen at its next question, and it holds a limited number of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from postroom import Application
from postroom.errors import BadValue, MessageBoxUnavailable, NotFound
from postroom.lookups.cache import FRESH_SECONDS, LookupCache
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection, connect
from tests.integration.lookups.conftest import StoreCustomer
from tests.support.deployment import deploy
from tests.support.lookups import CustomerId, Kind, customers_app

OpenCache = Callable[..., LookupCache]


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_cache(database: str, connection: Connection, clock: Clock) -> Iterator[OpenCache]:
    """Return a function that opens a cache with the login of a host."""
    role = find_host(connection, "Main").role_name
    with ExitStack() as stack:

        def open_cache(**limits: Any) -> LookupCache:
            cache = LookupCache(lambda: connect(database, user=role), get_time=clock, **limits)
            stack.callback(cache.close)
            return cache

        yield open_cache


def read(cache: LookupCache, key: object) -> bytes | None:
    entry = cache.get("Customers", key)
    return None if entry is None else entry.data


def test_an_entry_has_the_context_and_the_body(store: StoreCustomer, open_cache: OpenCache) -> None:
    store("C-1", b"Acme")
    entry = open_cache().get("Customers", "C-1")
    assert entry is not None
    assert entry.data == b"Acme"
    assert entry.context[CustomerId] == "C-1"
    assert entry.context.is_promoted(Kind)


def test_an_update_invalidates_the_entry_within_half_a_second(
    store: StoreCustomer, open_cache: OpenCache, clock: Clock
) -> None:
    cache = open_cache()
    store("C-1", b"first")
    store("C-2", b"other")
    assert [read(cache, key) for key in ("C-1", "C-2", "C-3")] == [b"first", b"other", None]
    store("C-1", b"second")
    store("C-2", b"")
    store("C-3", b"new")
    assert [read(cache, key) for key in ("C-1", "C-2", "C-3")] == [b"first", b"other", None]
    clock.seconds += FRESH_SECONDS
    assert [read(cache, key) for key in ("C-1", "C-2", "C-3")] == [b"second", None, b"new"]
    assert FRESH_SECONDS < 1


def test_an_entry_that_is_in_memory_is_not_read_again(
    store: StoreCustomer, open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache()
    store("C-1", b"first")
    assert read(cache, "C-1") == b"first"
    monkeypatch.setattr("postroom.lookups.cache.read_lookup_entry", None)
    assert read(cache, "C-1") == b"first"


@pytest.mark.parametrize("limits", [{"max_entries": 2}, {"max_bytes": 15}])
def test_the_cache_is_bounded(
    store: StoreCustomer, open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """The entry that was used longest ago is forgotten first."""
    cache = open_cache(**limits)
    for key in ("C-1", "C-2", "C-3"):
        store(key, b"customer")
    read(cache, "C-1")
    read(cache, "C-3")
    read(cache, "C-3")
    read(cache, "C-2")
    monkeypatch.setattr("postroom.lookups.cache.read_lookup_entry", lambda *_: None)
    assert (read(cache, "C-2"), read(cache, "C-1")) == (b"customer", None)


def test_a_lookup_that_was_removed_and_declared_again_starts_empty(
    connection: Connection, store: StoreCustomer, open_cache: OpenCache, clock: Clock
) -> None:
    cache = open_cache()
    store("C-1", b"first")
    assert read(cache, "C-1") == b"first"
    deploy(connection, Application("crm"))
    deploy(connection, customers_app())
    clock.seconds += FRESH_SECONDS
    assert read(cache, "C-1") is None


def test_an_unknown_lookup_and_a_key_of_another_type_are_refused(connection: Connection, open_cache: OpenCache) -> None:
    cache = open_cache()
    with pytest.raises(NotFound, match="no lookup 'Clients'"):
        cache.get("Clients", "C-1")
    with pytest.raises(BadValue, match=r"Crm\.CustomerId"):
        cache.get("Customers", 17)


def test_a_lost_connection_is_opened_again(
    database: str, connection: Connection, store: StoreCustomer, open_cache: OpenCache, clock: Clock
) -> None:
    cache = open_cache()
    store("C-1", b"first")
    read(cache, "C-1")
    opened: Any = cache
    pid = opened._connection.get().info.backend_pid
    connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    clock.seconds += FRESH_SECONDS
    assert read(cache, "C-1") == b"first"


def test_an_unavailable_messagebox_is_an_error_of_the_environment(clock: Clock) -> None:
    cache = LookupCache(lambda: connect("postgresql:///nothing?host=/nonexistent"), get_time=clock)
    with pytest.raises(MessageBoxUnavailable):
        cache.get("Customers", "C-1")
