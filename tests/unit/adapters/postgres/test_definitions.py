"""The definitions of the PostgreSQL adapters report all their problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom import Property, adapters, secret
from postroom.adapters import kinds
from postroom.errors import DefinitionError

URL = "postgresql://etl@db/erp"
RECEIVE = {
    "poll": "SELECT * FROM outbox ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
    "key": ["id"],
    "after": "DELETE FROM outbox WHERE id = %(id)s",
}
Region = Property("Orders.Region", str)


@pytest.mark.parametrize(
    ("definition", "load"),
    [
        (
            adapters.PostgresReceive(URL, **RECEIVE, options={"password": secret(env="ERP")}),  # type: ignore[arg-type]
            kinds.load_receive_adapter,
        ),
        (
            adapters.Postgres(
                URL, "erp.orders", mode="upsert", key=["id"], columns=[Region], fields={"id": "order.id"}
            ),
            kinds.load_send_adapter,
        ),
    ],
    ids=["receive", "send"],
)
def test_a_stored_definition_is_loaded_again(definition: adapters.AdapterDefinition, load: Any) -> None:
    assert definition.problems() == []
    assert load(definition.model_dump(mode="json")) == definition
    assert definition.address(Path()).startswith("postgresql://db/erp")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"poll": "SELECT * FROM outbox FOR UPDATE"}, "poll has no limit"),
        ({"poll": "SELECT * FROM outbox LIMIT %(limit)s"}, "poll does not lock its rows"),
        ({"poll": RECEIVE["poll"] + " OF %(table)s"}, "poll has the parameter 'table'"),  # type: ignore[operator]
        ({"key": []}, "key is empty"),
        ({"after": "DELETE FROM outbox"}, "after does not name its row"),
        ({"after": "UPDATE outbox SET sent = true WHERE id = %(id)s"}, "select xmin::text AS version"),
        ({"batch": 0}, "batch is 0"),
        ({"interval": 0}, "interval is 0"),
        ({"options": {"password": "sesame"}}, "option 'password' is a secret"),
        ({"options": {"colour": "red"}}, "option 'colour' is not a setting of libpq"),
        ({"url": "postgresql://etl:sesame@db/erp"}, "url contains a password"),
        ({"url": "mysql://db/erp"}, "url must start with postgresql://"),
    ],
)
def test_each_problem_of_a_receive_definition_is_reported(arguments: dict[str, Any], said: str) -> None:
    definition = adapters.PostgresReceive(**{"url": URL, **RECEIVE, **arguments})
    [problem] = definition.problems()
    assert said in problem
    assert "sesame" not in problem


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"table": "orders; DROP TABLE orders"}, "is not the name of a table"),
        ({"mode": "upsert"}, "mode is 'upsert', but key is empty"),
        ({"key": ["id"]}, "key is for mode='upsert'"),
        ({"mode": "upsert", "key": ["id"], "delivery_id": "delivery"}, "delivery_id is for mode='insert'"),
        ({"format": None, "body": "content", "fields": {"id": "id"}}, "fields are read from the document"),
        ({"format": None}, "no column is written"),
        ({"columns": {"id": Region}, "fields": {"id": "id"}}, "column 'id' is declared twice"),
        ({"url": "postgresql://db/erp?password=sesame"}, "url contains a password"),
    ],
)
def test_each_problem_of_a_send_definition_is_reported(arguments: dict[str, Any], said: str) -> None:
    definition = adapters.Postgres(**{"url": URL, "table": "orders", **arguments})
    [problem] = definition.problems()
    assert said in problem
    assert "sesame" not in problem


def test_columns_that_are_no_properties_are_rejected() -> None:
    with pytest.raises(DefinitionError, match="is not a property"):
        adapters.Postgres(URL, "orders", columns={"region": "Region"})  # type: ignore[dict-item]
