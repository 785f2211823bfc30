"""Filters as text: ``Region == 'EU' and Total >= 10000 or exists(Priority)``.

    parse("Region == 'EU'", [Region])        # the same as Region == "EU"
    format_filter(Region == "EU")            # "Orders.Region == 'EU'"

The two are inverse to each other. docs/reference/filter-language.md is the reference; the grammar:

    filter     = all { "or" all }
    all        = term { "and" term }
    term       = "(" filter ")" | "exists" "(" property ")" | property operator value
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "&"
    property   = name { "." name } | "{" namespace "}" name
    value      = 'text' | "text" | number | "true" | "false"
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable

from postroom.errors import BadFilter, BadValue
from postroom.filters.expression import Comparable, Filter, Operator, Predicate, all_of, any_of, compare
from postroom.filters.tokens import Token, TokenKind, error_at, escape, split_braced_name, tokens
from postroom.values import Value, ValueType, value_from_text, value_to_text

_OPERATORS = {operator.symbol: operator for operator in Operator if operator is not Operator.EXISTS}
_COMPARISONS = "==, !=, <, <=, >, >= or &"
_MAX_DEPTH = 100
_UNKNOWN = "Declare the properties that programs or other applications promote: app.property(...)."


def parse(text: str, properties: Iterable[Comparable], *, noun: str = "property", unknown: str = _UNKNOWN) -> Filter:
    """Parse ``text`` as a filter over ``properties``. Raise BadFilter, which points at the wrong character.

    ``noun`` is the word for a property in errors. ``unknown`` is the hint for a name that resembles none."""
    return _Parser(text, properties, noun, unknown).parse()


def format_filter(filter: Filter) -> str:
    """Return the filter as one line of text, with the full name of every property."""
    return " or ".join(" and ".join(format_predicate(p) for p in group) for group in filter.groups)


def format_predicate(predicate: Predicate) -> str:
    """Return one comparison as text: ``Orders.Total >= 10000``."""
    name = predicate.property.dotted_name
    if predicate.value is None:
        return f"exists({name})"
    return f"{name} {predicate.operator.symbol} {format_value(predicate.value)}"


def to_bare_name(property: Comparable) -> str:
    """Return the name without its namespace, if that can be omitted. It cannot for properties of an error report:
    they have the names of other properties (MessageType, ReceivePortName)."""
    return property.dotted_name if property.key.startswith("ErrorReport#") else property.name


def format_value(value: Value) -> str:
    """Return a value as a text filter contains it: text and datetimes in quotes."""
    if type(value) in (str, ValueType.DATETIME.python_type):
        return f"'{escape(value_to_text(value), chr(39))}'"
    return value_to_text(value)


class _Parser:
    def __init__(self, text: str, properties: Iterable[Comparable], noun: str, unknown: str) -> None:
        self._text = text
        self._noun = noun
        self._unknown = unknown
        # Tokens are read one at a time, so that the first error in the text is the one reported.
        self._source = tokens(text)
        self._tokens: list[Token] = []
        self._next = 0
        self._depth = 0
        self._by_name: dict[str, list[Comparable]] = defaultdict(list)
        for each in dict.fromkeys(properties):
            full = f"{each.namespace}#{each.name}"
            for name in dict.fromkeys((to_bare_name(each), each.dotted_name, each.key, full)):
                self._by_name[name].append(each)

    def parse(self) -> Filter:
        if self._peek().kind is TokenKind.END:
            raise BadFilter("The filter is empty.", hint="Write a comparison, such as Region == 'EU'.")
        result = self._any()
        if self._peek().kind is not TokenKind.END:
            raise self._unexpected_token(self._peek(), "and, or, or the end")
        return result

    def _any(self) -> Filter:
        terms = [self._all()]
        while self._take_keyword("or"):
            terms.append(self._all())
        return terms[0] if len(terms) == 1 else any_of(terms)

    def _all(self) -> Filter:
        terms = [self._term()]
        while self._take_keyword("and"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else all_of(terms)

    def _term(self) -> Filter:
        token = self._take()
        if token.kind is TokenKind.OPEN:
            return self._in_parentheses(token)
        if token.kind is TokenKind.KEYWORD and token.text == "exists":
            return self._exists()
        if token.kind is not TokenKind.NAME:
            hint = "Filters have no operator not. Write the opposite comparison." if token.text == "not" else ""
            raise self._unexpected_token(token, f"a {self._noun}, exists(...) or a parenthesis", hint)
        return self._comparison(token)

    def _in_parentheses(self, opening: Token) -> Filter:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise error_at(self._text, opening.start, f"Parentheses are nested more than {_MAX_DEPTH} deep")
        inside = self._any()
        self._expect(TokenKind.CLOSE, "a closing parenthesis")
        self._depth -= 1
        return inside

    def _exists(self) -> Filter:
        self._expect(TokenKind.OPEN, f"( and a {self._noun}")
        property = self._property(self._expect(TokenKind.NAME, f"a {self._noun}"))
        self._expect(TokenKind.CLOSE, "a closing parenthesis")
        return compare(property, Operator.EXISTS, None)

    def _comparison(self, name: Token) -> Filter:
        property = self._property(name)
        if self._peek().text.lower() in ("in", "not", "between", "like"):
            hint = "Values are compared one at a time; join comparisons with and or or."
            raise self._unexpected_token(self._peek(), _COMPARISONS, hint)
        symbol = self._expect(TokenKind.OPERATOR, _COMPARISONS)
        token = self._take()
        return Filter(((self._predicate(property, _OPERATORS[symbol.text], token),),))

    def _predicate(self, property: Comparable, operator: Operator, token: Token) -> Predicate:
        literal = token.kind in (TokenKind.STRING, TokenKind.NUMBER) or token.text in ("true", "false")
        if not literal:
            raise self._unexpected_token(
                token, "a value", "Put text values in quotes, as in 'EU'." if token.text else ""
            )
        if operator is Operator.BITAND and property.value_type is not ValueType.INT:
            named = property.value_type.python_type.__name__
            what = f"{property.dotted_name} is of type {named}, and a bitwise AND needs an int {self._noun}"
            raise error_at(self._text, token.start, what, "To join two comparisons write and.")
        if property.value_type is ValueType.STR and token.kind is not TokenKind.STRING:
            hint = f"Put the value in quotes: '{token.text}'."
            raise error_at(self._text, token.start, f"{property.dotted_name} is text, and {token.text} is not", hint)
        try:
            # A mask is a set of bits, not a quantity: it is never rounded.
            value = value_from_text(property.value_type, token.text, round_to_int=operator is not Operator.BITAND)
            return Predicate(property, operator, value)
        except (BadValue, BadFilter) as error:
            what = error.what.rstrip(".")
            if isinstance(error, BadValue):
                what = f"{property.dotted_name} {operator.symbol} {token.text}: {what}"
            raise error_at(self._text, token.start, what, error.hint) from None

    def _property(self, token: Token) -> Comparable:
        word = token.text
        if word.startswith("{"):
            namespace, name = split_braced_name(self._text, word, token.start)
            word = f"{namespace}#{name}"
        found = self._by_name.get(word, [])
        if len(found) == 1:
            return found[0]
        if found:
            full = sorted(f"{each.dotted_name} ({each.value_type.python_type.__name__})" for each in found)
            raise error_at(
                self._text,
                token.start,
                f"{token.text} could be {' or '.join(full)}",
                f"Write the {self._noun}'s full name.",
            )
        near = difflib.get_close_matches(word, [name for name in self._by_name if "#" not in name], n=3, cutoff=0.7)
        hint = f"Did you mean {' or '.join(near)}?" if near else self._unknown
        raise error_at(self._text, token.start, f"There is no {self._noun} {token.text}", hint)

    def _peek(self) -> Token:
        if self._next == len(self._tokens):
            self._tokens.append(next(self._source))
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek()
        if token.kind is not TokenKind.END:
            self._next += 1
        return token

    def _take_keyword(self, word: str) -> bool:
        token = self._peek()
        found = token.kind is TokenKind.KEYWORD and token.text == word
        self._next += found
        return found

    def _expect(self, kind: TokenKind, wanted: str) -> Token:
        token = self._take()
        if token.kind is not kind:
            raise self._unexpected_token(token, wanted)
        return token

    def _unexpected_token(self, token: Token, wanted: str, hint: str = "") -> BadFilter:
        found = f"{token.text!r} is found" if token.kind is not TokenKind.END else "The filter ends"
        return error_at(self._text, token.start, f"{found} where {wanted} is expected", hint)
