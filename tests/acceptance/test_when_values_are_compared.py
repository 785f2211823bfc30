"""ACC-05: every operator with every type; values below, equal and above, no value, and a written value."""

from __future__ import annotations

from datetime import datetime

import postroom
from postroom import Message, Property
from postroom.client.client import Client
from postroom.errors import PublishFailed
from postroom.filters.expression import Operator
from postroom.values import Value
from tests.support.catalogue import COMPARISONS, Case, Comparison
from tests.support.installation import Installation


def format_python(value: Value | None) -> str:
    """Return the value as Python source for an application file."""
    if isinstance(value, datetime):
        return f"datetime.fromisoformat({value.isoformat()!r})"
    return repr(value)


def format_send_port(comparison: Comparison) -> str:
    """Return the declaration of a send port with one comparison."""
    name = comparison.prop.name
    match comparison.operator:
        case Operator.EXISTS:
            condition = f"{name}.exists()"
        case Operator.BITAND:
            condition = f"{name}.bitand({comparison.value})"
        case operator:
            condition = f"{name} {operator.symbol} {format_python(comparison.value)}"
    return f"app.send_port({name!r}, adapters.Null(), filter={condition})"


def test_every_operator_matches_as_in_the_truth_table(installation: Installation) -> None:
    """PRED-05, PRED-06."""
    lines = ["from datetime import datetime"]
    for comparison in COMPARISONS:
        prop = comparison.prop
        lines.append(f"{prop.name} = Property({prop.dotted_name!r}, {prop.value_type.python_type.__name__})")
        lines.append(f"app.property({prop.name})")
        lines.append(format_send_port(comparison))
    installation.apply("\n".join(lines) + "\n")
    assert len(installation.run_json("subscription", "list", "--limit", "10000")) == len(COMPARISONS)
    with postroom.connect(installation.database) as client:
        for comparison in COMPARISONS:
            for case in comparison.cases:
                expected = (comparison.prop.name,) if case.holds else ()
                assert publish_one(client, comparison.prop, case) == expected, (str(comparison), case)


def publish_one(client: Client, prop: Property, case: Case) -> tuple[str, ...]:
    given = case.context.get(prop)
    values: dict[Property, object] = {} if given is None else {prop: given}
    routed = case.context.is_promoted(prop)
    message = Message.of(b"", promoted=values if routed else {}, written={} if routed else values)
    try:
        return client.publish_many([message])[0].subscribers
    except PublishFailed:
        return ()
