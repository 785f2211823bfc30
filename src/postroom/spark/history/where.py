"""The option ``where``: a filter over the columns of a table, in the language of docs/reference/filter-language.md.

The names of columns come from the table and every value is a parameter, so no text of the user becomes SQL.
"""

from __future__ import annotations

import uuid

from postroom.errors import BadFilter
from postroom.filters.expression import Operator, Predicate
from postroom.filters.text import format_value, parse
from postroom.messagebox.history import Condition
from postroom.properties import Property
from postroom.spark.history.history_tables import ColumnKind, HistoryTable

_OPERATORS = {
    Operator.EQ: "=",
    Operator.NE: "<>",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
}
#: Text is compared by code point, as in every filter and in Spark.
_SQL = {
    ColumnKind.ID: ("{}", "%s::uuid"),
    ColumnKind.TEXT: ('{} COLLATE "C"', "%s::text"),
    ColumnKind.INT: ("{}", "%s::bigint"),
    ColumnKind.LONG: ("{}", "%s::bigint"),
    ColumnKind.TIME: ("{}", "%s::timestamptz"),
}


def parse_where(text: str, table: HistoryTable) -> Condition:
    """Translate a filter into a condition of PostgreSQL; raise BadFilter if it cannot be read."""
    columns = [
        Property(f"{table.name}.{name}", kind.compared)
        for name, kind in table.columns.items()
        if kind.compared is not None
    ]
    unknown = f"The columns that can be compared are {', '.join(column.name for column in columns)}."
    try:
        filter = parse(text, columns, noun="column", unknown=unknown)
        groups = [[_condition(predicate, table) for predicate in group] for group in filter.groups]
    except BadFilter as error:
        raise BadFilter(f"The option where cannot be read. {error.what}", why=error.why, hint=error.hint) from None
    sql = " OR ".join(" AND ".join(condition for condition, _ in group) for group in groups)
    return f"({sql})", [value for group in groups for _, values in group for value in values]


def _condition(predicate: Predicate, table: HistoryTable) -> Condition:
    name = predicate.property.name
    kind = table.columns[name]
    if predicate.operator is Operator.EXISTS:
        return f"{name} IS NOT NULL", []
    column, parameter = _SQL[kind]
    value = predicate.value
    if kind is ColumnKind.ID:
        try:
            value = str(uuid.UUID(str(value)))
        except ValueError:
            assert value is not None
            raise BadFilter(
                f"{name} is compared with {format_value(value)}, which is not an id.", hint="Write the whole id."
            ) from None
    if predicate.operator is Operator.BITAND:
        return f"({name} & {parameter}) <> 0", [value]
    return f"{column.format(name)} {_OPERATORS[predicate.operator]} {parameter}", [value]
