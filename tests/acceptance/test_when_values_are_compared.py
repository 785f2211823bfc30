"""ACC-05: every operator with every type; below, equal, above, missing and written only."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import postroom
from postroom import Message, Property
from postroom.errors import PublishFailed
from tests.support.house import House

#: Per type: a value below, the value that the filters compare with, and a value above it, as Python source.
VALUES = {
    "str": ('"9"', '"a"', '"b"'),
    "int": ("9", "10", "11"),
    "Decimal": ('Decimal("9.99")', 'Decimal("10.00")', 'Decimal("10.01")'),
    "float": ("9.5", "10.0", "10.5"),
    "datetime": (
        "datetime(2026, 1, 1, 11, 59, 59, tzinfo=UTC)",
        "datetime(2026, 1, 1, 12, 0, tzinfo=UTC)",
        "datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)",
    ),
    "bool": ("False", "True", "True"),
}
#: Per operator: does it hold for a value below, an equal one, one above?
TRUTH = {
    "==": (False, True, False),
    "<": (True, False, False),
    "<=": (True, True, False),
    ">": (False, False, True),
    ">=": (False, True, True),
    "!=": (True, False, True),
    "exists": (True, True, True),
}
NAMES = {"Decimal": Decimal, "datetime": datetime, "UTC": UTC}


def operators_for(kind: str) -> list[str]:
    return ["==", "!=", "exists"] if kind == "bool" else list(TRUTH)


def test_the_truth_table_of_operators_and_types(house: House) -> None:
    lines = ["from datetime import UTC, datetime"]
    for kind, (_, equal, _) in VALUES.items():
        lines.append(f'{kind}_property = Property("V.{kind}", {kind})')
        for operator in operators_for(kind):
            holds = f"{kind}_property.exists()" if operator == "exists" else f"{kind}_property {operator} {equal}"
            lines.append(f'app.send_port("{kind} {operator}", adapters.Null(), filter={holds})')
    lines.append('app.send_port("int &", adapters.Null(), filter=int_property.bitand(4))')
    declared = "\n".join(f"app.property({kind}_property)" for kind in VALUES)
    house.apply("\n".join(lines) + "\n" + declared + "\n")
    with postroom.connect(house.database) as client:

        def subscribers(message: Message) -> set[str]:
            try:
                return set(client.publish_many([message])[0].subscribers)
            except PublishFailed:
                return set()

        types = {"str": str, "int": int, "Decimal": Decimal, "float": float, "datetime": datetime, "bool": bool}
        for kind, sources in VALUES.items():
            prop = Property(f"V.{kind}", types[kind])
            for position, source in enumerate(sources):
                value = eval(source, dict(NAMES))  # the very text that stands in the application
                expected = {f"{kind} {name}" for name in operators_for(kind) if TRUTH[name][position]}
                if kind == "bool" and position == 2:
                    expected = {"bool ==", "bool exists"}  # there is nothing above true
                found = subscribers(Message.of(b"", promoted={prop: value}))
                assert found - {"int &"} == expected, (kind, source)
                assert subscribers(Message.of(b"", written={prop: value})) == set()
        assert subscribers(Message.of(b"", promoted={Property("V.int", int): 12})) >= {"int &"}
        assert "int &" not in subscribers(Message.of(b"", promoted={Property("V.int", int): 8}))
        assert subscribers(Message.of(b"")) == set()
