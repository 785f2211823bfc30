"""The access predicate of a group, and the table in which each predicate is stored."""

from __future__ import annotations

from decimal import Decimal

import pytest

from postroom.filters.access import (
    PredicateTable,
    Selectivity,
    choose_access,
    choose_predicate_table,
    choose_predicate_tables,
)
from postroom.filters.expression import Filter, Group
from postroom.properties import Property

Region = Property("Orders.Region", str)
Kind = Property("Orders.Kind", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
Paid = Property("Orders.Paid", bool)
PAID = Paid == True  # noqa: E712


def group(filter: Filter) -> Group:
    (only,) = filter.groups
    return only


@pytest.mark.parametrize(
    ("filter", "chosen", "selectivity"),
    [
        ((Priority == 1) & (Region == "EU") & (Kind == "order"), Region == "EU", Selectivity.TEXT_EQUALITY),
        ((Total >= 10) & (Priority == 1), Priority == 1, Selectivity.EQUALITY),
        ((Priority >= 1) & (Total >= 10) & (Total < 20), (Total >= 10) & (Total < 20), Selectivity.INTERVAL),
        ((Total < 20) & (Priority != 5) & (Total > 10), (Total < 20) & (Total > 10), Selectivity.INTERVAL),
        (PAID & (Total >= 10), Total >= 10, Selectivity.ONE_SIDED),
        (Region.exists() & PAID & (Region != "EU"), PAID, Selectivity.BOOL_EQUALITY),
        ((Region != "EU") & Priority.exists(), Region != "EU", Selectivity.PRESENCE),
        (Priority.bitand(4), Priority.bitand(4), Selectivity.PRESENCE),
    ],
)
def test_the_most_selective_predicate_is_chosen(filter: Filter, chosen: Filter, selectivity: Selectivity) -> None:
    access = choose_access(group(filter))
    assert access.selectivity is selectivity
    assert access.predicates == group(chosen)
    assert access.is_equality is (selectivity in {0, 1, 4})


def test_bounds_of_two_properties_are_no_interval() -> None:
    assert choose_access(group((Total >= 10) & (Priority < 5))).selectivity is Selectivity.ONE_SIDED


def test_the_access_equality_is_stored_in_the_first_pass_and_other_equalities_in_the_second() -> None:
    assert choose_predicate_tables(group((Priority == 1) & (Region == "EU") & (Total >= 10))) == (
        PredicateTable.EQUALS_PREDICATES_2ND_PASS,
        PredicateTable.FIRST_PASS_PREDICATES,
        PredicateTable.GREATER_THAN_OR_EQUALS_PREDICATES,
    )


def test_an_equality_is_stored_in_equals_predicates_if_the_access_is_no_equality() -> None:
    assert choose_predicate_tables(group(PAID & (Total > 10))) == (
        PredicateTable.EQUALS_PREDICATES,
        PredicateTable.GREATER_THAN_PREDICATES,
    )


def test_other_predicates_are_stored_by_operator() -> None:
    filter = (
        (Priority < 9)
        & (Priority <= 8)
        & (Priority > 1)
        & (Priority >= 2)
        & (Priority != 5)
        & Region.exists()
        & Priority.bitand(1)
    )
    access = choose_access(group(filter))
    assert [choose_predicate_table(predicate, access).name.lower() for predicate in group(filter)] == [
        "less_than_predicates",
        "less_than_or_equals_predicates",
        "greater_than_predicates",
        "greater_than_or_equals_predicates",
        "not_equals_predicates",
        "exists_predicates",
        "bitwise_and_predicates",
    ]


def test_the_tables_have_the_names_and_numbers_of_the_schema() -> None:
    assert {table.value: table.name.lower() for table in PredicateTable} == {
        1: "bitwise_and_predicates",
        2: "equals_predicates",
        3: "equals_predicates_2nd_pass",
        4: "exists_predicates",
        5: "first_pass_predicates",
        6: "greater_than_or_equals_predicates",
        7: "greater_than_predicates",
        8: "less_than_or_equals_predicates",
        9: "less_than_predicates",
        10: "not_equals_predicates",
    }
