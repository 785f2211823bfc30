"""The types of properties. mypy checks this file with postroom's plugin: an ignored error that it does not find is an
error itself."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import assert_type
from unittest.mock import Mock

import pytest

from postroom import AsyncClient, BadValue, Client, Context, Message, Property

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Due = Property("Orders.Due", datetime)


def test_a_value_has_the_type_of_its_property() -> None:
    context = Message.of(
        promoted={Region: "EU", Total: Decimal(1)}, written={Due: datetime(2026, 1, 1, tzinfo=UTC)}
    ).context
    assert_type(context[Total], Decimal)
    assert_type(context.get(Region), str | None)
    assert_type(context.get(Region, 0), str | int)
    assert context[Total] == 1
    assert context.get(Region) == "EU"
    assert context.get(Property("Orders.No", str), 0) == 0


def test_a_value_of_another_type_is_found_in_a_dict() -> None:
    with pytest.raises(BadValue, match=r"Orders\.Total"):
        Message.of(promoted={Region: "EU", Total: "abc"})  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=r"Orders\.Region"):
        Message.of(written={Region: 1})  # type: ignore[arg-type]


def test_a_value_of_another_type_is_found_in_a_call() -> None:
    with pytest.raises(BadValue, match=r"Orders\.Total"):
        Context().promote(Total, "abc")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=r"Orders\.Due"):
        Context().write(Due, 1)  # type: ignore[arg-type]


def test_a_value_of_another_type_is_found_in_a_publish() -> None:
    client = Mock(spec=Client)
    client._find_pauses.return_value = iter(())
    client._publish_now.return_value = [None]
    client._build_message.return_value = Message.of(b"")

    def publish(client: Client) -> None:
        client.publish(b"", promoted={Region: "EU", Total: "abc"})  # type: ignore[arg-type]
        client.request(b"", promoted={Region: "EU", Total: "abc"})  # type: ignore[arg-type]
        client.publish(b"", promotd={Region: "EU"})  # type: ignore[call-arg]

    async def publish_in_a_task(client: AsyncClient) -> None:
        await client.publish(b"", written={Total: "abc"})  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.request(b"", written={Total: "abc"}), 0)  # type: ignore[arg-type]

    publish(client)
    asyncio.run(publish_in_a_task(AsyncClient(client)))
    assert client.publish.call_count == 2, "only mypy checks these values here"
    assert client._publish_now.call_count == 1


def test_an_int_is_a_value_of_a_decimal_property() -> None:
    assert Message.of(promoted={Total: 12}).context == Context().promote(Total, 12)


def test_none_removes_a_property() -> None:
    assert Context().promote(Total, 12).promote(Total, None) == Context()


def test_a_property_of_an_unknown_type_takes_any_value() -> None:
    name = "Orders.Size"
    size: Property = Property(name, {"Orders.Size": int}[name])
    assert Message.of(promoted={size: 7}).context[size] == 7
