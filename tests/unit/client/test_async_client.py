"""The client for asyncio has the methods and the parameters of the synchronous one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from postroom.client.async_client import AsyncClient, AsyncLookup, AsyncReceived, AsyncSubscription, connect_async
from postroom.client.client import Client, connect
from postroom.client.subscription import Received, Subscription
from postroom.lookups import Lookup


def get_public_names(cls: type[Any]) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def get_parameters(function: Any) -> list[tuple[str, object, object]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


@pytest.mark.parametrize(
    ("cls", "async_cls"),
    [(Client, AsyncClient), (Subscription, AsyncSubscription), (Received, AsyncReceived), (Lookup, AsyncLookup)],
)
def test_the_asyncio_class_has_the_same_methods_and_parameters(cls: type[Any], async_cls: type[Any]) -> None:
    names = get_public_names(cls)
    assert get_public_names(async_cls) == names
    for name in names:
        if not isinstance(method := getattr(cls, name), property):
            assert get_parameters(getattr(async_cls, name)) == get_parameters(method), name
            if name == "lookup":
                continue  # it only names the lookup, and waits for nothing
            assert inspect.iscoroutinefunction(inspect.unwrap(getattr(async_cls, name), stop=_is_coroutine)), name


def test_connecting_has_the_same_parameters() -> None:
    assert get_parameters(connect_async) == get_parameters(connect)


def _is_coroutine(function: Any) -> bool:
    return inspect.iscoroutinefunction(function)
