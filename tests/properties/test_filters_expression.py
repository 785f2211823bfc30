"""An expression of & and | has the same meaning as the OR of AND-groups that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.filters.evaluate import matches, predicate_holds
from postroom.filters.explain import distance, explain
from postroom.filters.expression import Filter, Predicate
from postroom.values import Value
from tests.support.filter_strategies import contexts, filters, misfits, predicates


@dataclass(frozen=True)
class Expression:
    """A filter, and a function that computes the expected result with Python's and / or."""

    filter: Filter
    evaluate: Callable[[Mapping[str, Value]], bool]


def from_predicate(predicate: Predicate) -> Expression:
    return Expression(Filter(((predicate,),)), lambda promoted: predicate_holds(predicate, promoted))


def both(pair: tuple[Expression, Expression]) -> Expression:
    left, right = pair
    return Expression(left.filter & right.filter, lambda p: left.evaluate(p) and right.evaluate(p))


def either(pair: tuple[Expression, Expression]) -> Expression:
    left, right = pair
    return Expression(left.filter | right.filter, lambda p: left.evaluate(p) or right.evaluate(p))


def expressions() -> st.SearchStrategy[Expression]:
    return st.recursive(
        predicates().map(from_predicate),
        lambda inner: st.tuples(inner, inner).map(both) | st.tuples(inner, inner).map(either),
        max_leaves=8,
    )


@settings(max_examples=60)
@given(expressions(), st.lists(contexts(), min_size=1, max_size=5))
def test_normalising_an_expression_keeps_its_meaning(expression: Expression, batch: list[dict[str, Value]]) -> None:
    for promoted in batch:
        assert matches(expression.filter, promoted) == expression.evaluate(promoted)


@settings(max_examples=60)
@given(filters(), contexts() | misfits(), contexts())
def test_an_explanation_agrees_with_the_evaluator(
    filter: Filter, promoted: dict[str, Value], written: dict[str, Value]
) -> None:
    explanation = explain(filter, promoted, written)
    assert explanation.holds == matches(filter, promoted)
    assert (explanation.distance == 0) == explanation.holds
    assert explanation.distance == distance(filter.groups, promoted, written)
    for group, explained in zip(filter.groups, explanation.groups, strict=True):
        assert tuple(each.predicate for each in explained.predicates) == group
        assert [each.holds for each in explained.predicates] == [predicate_holds(each, promoted) for each in group]
        assert all(each.description.isprintable() for each in explained.predicates)
