"""What an older version stored under another name is found under the new one."""

from __future__ import annotations

import typing

from psycopg.types.json import Jsonb

from postroom import Application, adapters, pipelines
from postroom.application.definition import ApplicationDefinition
from postroom.messagebox.statements import statement
from tests.support.box import Box


def test_every_kind_of_adapter_is_spelt_in_one_way() -> None:
    kinds = [one.model_fields["kind"].default for one in typing.get_args(adapters.PortAdapter)]
    assert [kind for kind in kinds if not kind.isidentifier()] == []


def test_a_reader_that_was_stored_with_a_hyphen(box: Box) -> None:
    reader = adapters.SparkReader("csv", "in", schema="id bigint", options={"comment": '"kind": "spark-reader"'})
    app = Application("bulk")
    app.receive_port("In").location("rows", reader, pipeline=pipelines.Rows())
    definition = app.definition()
    old = reader.model_dump(mode="json") | {"kind": "spark-reader"}
    stored = definition.stored()
    stored["receive_ports"][0]["locations"][0]["adapter"] = old
    box.add_location()
    box.connection.execute("UPDATE receive_locations SET adapter = %s", (Jsonb(old),))
    box.connection.execute("INSERT INTO applications (name, definition) VALUES ('bulk', %s)", (Jsonb(stored),))
    box.connection.execute(statement("schema/0021_one_spelling_of_adapters"))
    assert adapters.load_adapter(box.one("SELECT adapter FROM receive_locations")) == reader
    again = box.one("SELECT definition FROM applications WHERE name = 'bulk'")
    assert ApplicationDefinition.from_stored(again).stored() == definition.stored()
