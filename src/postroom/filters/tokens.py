"""Split a text filter into tokens with positions, and create errors that point at a position."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from postroom.errors import BadFilter

#: How many characters of a long line an error shows on either side of its position.
_SHOWN = 60


class TokenKind(Enum):
    """What a token is."""

    NAME = auto()
    KEYWORD = auto()
    OPERATOR = auto()
    NUMBER = auto()
    STRING = auto()
    OPEN = auto()
    CLOSE = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token. ``text`` is a keyword in lower case, or a string without its quotes and escapes."""

    kind: TokenKind
    text: str
    start: int


KEYWORDS = frozenset({"and", "or", "not", "exists", "true", "false"})

_WORD = re.compile(
    r"""(?P<space>\s+)
    |(?P<name>(?:\{(?:[^\\{}]|\\u\{[0-9A-Fa-f]+\}|\\.)*\})?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<operator>==|!=|<=|>=|<(?!>)|>|&(?!&))
    |(?P<open>\()
    |(?P<close>\))""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS = {
    "name": TokenKind.NAME,
    "number": TokenKind.NUMBER,
    "string": TokenKind.STRING,
    "operator": TokenKind.OPERATOR,
    "open": TokenKind.OPEN,
    "close": TokenKind.CLOSE,
}
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.)|$)", re.DOTALL)

#: Syntax of other languages, with the hint to show for it.
_MISSPELT = (
    ("&&", "Write and."),
    ("||", "Write or."),
    ("<>", "Write !=."),
    ("=", "Write == to compare."),
    ("!", "Filters have no operator not. Write != to compare."),
    ("'", "The quote is not closed."),
    ('"', "The quote is not closed."),
    ("{", "A namespace in braces is followed by the property's name, as in {http://example.org/orders}Region."),
    ("[", "Values are compared one at a time; join comparisons with or."),
)


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of ``text`` and finally END. Raise BadFilter at the first character that starts no token."""
    position = 0
    while position < len(text):
        found = _WORD.match(text, position)
        if found is None:
            rest = text[position:]
            hint = next((hint for start, hint in _MISSPELT if rest.startswith(start)), "")
            word = re.findall(r"\w[\w.]*|[^\w\s]{1,2}|.", rest, re.DOTALL)[0]
            raise error_at(text, position, f"{word} does not belong here", hint)
        group = found.lastgroup
        assert group is not None
        if group != "space":
            yield _token(text, _KINDS[group], found.group(), position)
        position = found.end()
    yield Token(TokenKind.END, "", len(text))


def _token(text: str, kind: TokenKind, word: str, start: int) -> Token:
    if kind is TokenKind.STRING:
        return Token(kind, _unescape(text, word[1:-1], start + 1, word[0]), start)
    if kind is TokenKind.NAME and word.lower() in KEYWORDS:
        return Token(TokenKind.KEYWORD, word.lower(), start)
    return Token(kind, word, start)


def split_braced_name(text: str, word: str, start: int) -> tuple[str, str]:
    """Return namespace and name of ``{http://example.org/orders}Region``."""
    namespace, _, name = word[1:].rpartition("}")
    return _unescape(text, namespace, start + 1, "}"), name


def escape(plain: str, ending: str) -> str:
    """Escape text for quotes or braces that ``ending`` closes. The result is printable and has one line."""
    return "".join(_escape_char(char, _escapable(ending)) for char in plain)


def _escape_char(char: str, escapable: str) -> str:
    if char in escapable:
        return f"\\{char}"
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


def _escapable(ending: str) -> str:
    return "\\{}" if ending == "}" else f"\\{ending}"


def _unescape(text: str, inner: str, start: int, ending: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code, char = found.groups()
        if code is not None and int(code, 16) <= 0x10FFFF:
            return chr(int(code, 16))
        if char is not None and char in _escapable(ending) + "'\"":
            return str(char)
        # Nothing else is an escape: a path such as C:\temp must not silently become a tab.
        raise error_at(text, start + found.start(), f"{found.group()} is not an escape", "Write \\\\ for a backslash.")

    return _ESCAPE.sub(plain, inner) if "\\" in inner else inner


def error_at(text: str, position: int, what: str, hint: str = "") -> BadFilter:
    """Return a BadFilter that shows the line of ``text`` with a caret under the character at ``position``."""
    line_start = text.rfind("\n", 0, position) + 1
    line_end = text.find("\n", position)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    column = position - line_start
    first = max(0, column - _SHOWN)
    shown = "".join(c if c.isprintable() else " " for c in line[first : column + _SHOWN])
    where = f"character {column + 1}" if position < len(text) else "the end"
    if position < len(text) and "\n" in text.rstrip():
        where = f"line {text.count(chr(10), 0, position) + 1}, {where}"
    return BadFilter(f"{what} (at {where}).", why=f"  {shown}\n  {' ' * (column - first)}^", hint=hint)
