"""File names: templates with macros for written files, and patterns of received files.

| macro                         | becomes                                                               |
|-------------------------------|-----------------------------------------------------------------------|
| `%MessageID%`                 | the message's id                                                      |
| `%SourceFileName%`            | the name of the file it was received from, without its folder         |
| `%SourceExtension%`           | that name's extension with its dot, or nothing                        |
| `%SourceParty%`               | BTS.SourceParty; so also `%SourcePartyQualifier%`, `%DestinationParty%` |
|                               | and `%DestinationPartyQualifier%`                                     |
| `%SendPort%`                  | the name of the send port                                             |
| `%SendPortGroup%`             | the name of the send port group that it comes through, or nothing     |
| `%datetime%`                  | UTC, as 1997-07-12T103508                                             |
| `%datetime_bts2000%`          | UTC with a tenth of a second, as 199707121035234                      |
| `%datetime.tz%`               | local time and its offset, as 1997-07-12T103508+800                   |
| `%time%`, `%time.tz%`         | the same without the date, as 103508 and 103508+800                   |

The file name is the argument ``name``, or the last part of the path: ``File("out/%MessageID%.xml")``, as in BizTalk.
The spellings are BizTalk's, except for `%SourceExtension%` and the macros of ports, which BizTalk lacks. As in BizTalk,
a macro stays in the name unchanged if the message lacks its property. An unknown macro is rejected when the application
is loaded.

A port may get a message twice, directly and through a group (SUB-15). The name of a copy that is routed through a group
contains the group's name before the extension, unless the template contains `%SendPortGroup%`. So each copy is a file
of its own, and a repeated attempt writes the same name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from postroom.message import Message
from postroom.properties import Property
from postroom.system_properties import BTS, FILE

DEFAULT_NAME = "%MessageID%%SourceExtension%"

_MESSAGE_ID = "%MessageID%"
_SOURCE_EXTENSION = "%SourceExtension%"
_SEND_PORT = "%SendPort%"
_SEND_PORT_GROUP = "%SendPortGroup%"
MACRO = re.compile(r"%[A-Za-z][A-Za-z0-9_.]*%")
# Characters that are separators, are invalid on some file system, or are invisible.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff/\\<>:"|?*]')
_RESERVED = re.compile(r"(CON|PRN|AUX|NUL|CLOCK\$|COM[0-9]|LPT[0-9])(\..*)?", re.IGNORECASE)
_PATTERN_TOKENS = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)
MAX_NAME_BYTES = 255
_LONGEST_EXTENSION = 32
# In the form of a name: any text.
_ANYTHING = "%%"


def find_template_problems(template: str) -> list[str]:
    """Return the problems of a template, one sentence each."""
    found = [
        f"name {template!r}: the macro {macro} does not exist; the macros are {', '.join(sorted(_MACROS))}."
        for macro in dict.fromkeys(MACRO.findall(template))
        if macro not in _MACROS
    ]
    if not template.strip():
        found.append("name is empty.")
    if unsafe := _UNSAFE.search(template):
        separator = " The separator of folders is '/'." if "\\" in template else ""
        found.append(f"name {template!r} contains {unsafe.group()!r}, which is not allowed in a file name.{separator}")
    if template.startswith("."):
        found.append(f"name {template!r} begins with a dot: the file would be hidden.")
    return found


def split_path(path: str) -> tuple[str, str]:
    """Split a path into the folder and the template of the file name. Only a last part with a macro is a file name."""
    folder, separator, last = path.rpartition("/")
    return (folder or separator or ".", last) if MACRO.search(last) else (path, DEFAULT_NAME)


def is_unique(template: str) -> bool:
    """Return True if two messages can never get the same name."""
    return _MESSAGE_ID in template


def format_file_name(template: str, message: Message, now: datetime, group: str | None = None) -> str:
    """Fill in the template for a copy that is routed through ``group``, or directly if it is None.

    The result is always one visible name inside the folder, whatever the values contain.
    """

    def value(macro: re.Match[str]) -> str:
        if macro.group() == _SEND_PORT_GROUP:
            return "" if group is None else _to_distinct_name(group)
        text = _MACROS[macro.group()](message, now) if macro.group() in _MACROS else None
        return macro.group() if text is None else text

    name = _UNSAFE.sub("_", MACRO.sub(value, template))
    if group is not None and _SEND_PORT_GROUP not in template:
        extension = PurePosixPath(name).suffix
        name = f"{name[: len(name) - len(extension)]}-{_to_distinct_name(group)}{extension}"
    return to_safe_name(name)


def can_coincide(one: str, one_port: str, other: str, other_port: str) -> bool:
    """Return True if the files of two send ports can get the same name from one message.

    Only names with the message id count: a port regards such a file as its own.
    """
    if not is_unique(one) or not is_unique(other):
        return False
    return any(_can_match_both(a, b) for a in _list_forms(one, one_port) for b in _list_forms(other, other_port))


def _list_forms(template: str, port: str) -> Iterator[tuple[str, ...]]:
    """Yield the forms of a port's names: characters, the message id, and ``_ANYTHING``; with and without extension."""
    for extension in ("", ".%datetime%") if _SOURCE_EXTENSION in template else ("",):
        form: list[str] = []
        for piece in re.split(f"({MACRO.pattern})", template.replace(_SOURCE_EXTENSION, extension)):
            if piece == _MESSAGE_ID:
                form.append(piece)
            elif piece == _SEND_PORT:
                form.extend(_to_distinct_name(port))
            elif MACRO.fullmatch(piece):
                form.append(_ANYTHING)
            else:
                form.extend(piece)
        yield tuple(form)


def _can_match_both(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if a name exists that has both forms. A "?" is any character."""
    todo, seen = [(0, 0)], set[tuple[int, int]]()
    while todo:
        i, j = at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if i == len(one) or j == len(other):
            if set(one[i:] + other[j:]) <= {_ANYTHING}:
                return True
        elif _ANYTHING in (one[i], other[j]):
            # No other value contains the message id.
            todo += [(i + 1, j)] if one[i] != _MESSAGE_ID else []
            todo += [(i, j + 1)] if other[j] != _MESSAGE_ID else []
        elif one[i] == other[j] or "?" in (one[i], other[j]):
            todo.append((i + 1, j + 1))
    return False


def can_match_same_name(one: str, other: str) -> bool:
    """Return True if a name may match both patterns. Character classes are assumed to overlap."""
    return _can_match_both(_tokenize(one), _tokenize(other))


def _tokenize(pattern: str) -> tuple[str, ...]:
    """Split a pattern into characters, ``_ANYTHING`` for stars, and "?" for any character and character classes."""
    return tuple(
        _ANYTHING if token.startswith("*") else "?" if len(token) > 1 else token
        for token in _PATTERN_TOKENS.findall(pattern)
    )


def _to_distinct_name(name: str) -> str:
    """Return the name of a port or group as a part of a file name. Different names give different results."""
    plain = _UNSAFE.sub("_", name)
    return plain if plain == name else f"{plain}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def to_safe_name(name: str) -> str:
    """Replace what would lead out of the folder, hide the file, or be rejected by a file system."""
    name = _UNSAFE.sub("_", name)
    if not name or name.startswith("."):
        name = f"_{name[1:]}"
    if name.endswith((".", " ")):
        name = f"{name[:-1]}_"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    return _shorten(name)


def _shorten(name: str) -> str:
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    # Two long names that differ only in what is cut off must stay two names.
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    extension = PurePosixPath(name).suffix
    if len(extension.encode()) > _LONGEST_EXTENSION:
        extension = ""
    capacity = MAX_NAME_BYTES - len(digest) - len(extension.encode()) - 1
    head = name[: len(name) - len(extension)].encode()[:capacity].decode(errors="ignore")
    return f"{head}~{digest}{extension}"


def _source_name(message: Message, now: datetime) -> str | None:
    received = message.context.get(FILE.ReceivedFileName)
    return None if received is None else re.split(r"[/\\]", str(received))[-1]


def _send_port(message: Message, now: datetime) -> str | None:
    name = message.context.get(BTS.SPName)
    return None if name is None else _to_distinct_name(str(name))


def _read_property(prop: Property) -> Callable[[Message, datetime], str | None]:
    def read(message: Message, now: datetime) -> str | None:
        value = message.context.get(prop)
        return None if value is None else str(value)

    return read


def _format_local_time(form: str) -> Callable[[Message, datetime], str]:
    def read(message: Message, now: datetime) -> str:
        local = now.astimezone()
        offset = local.utcoffset() or timedelta()
        minutes = int(abs(offset).total_seconds()) // 60
        return f"{local:{form}}{'-' if offset < timedelta() else '+'}{minutes // 60}{minutes % 60:02d}"

    return read


_MACROS: dict[str, Callable[[Message, datetime], str | None]] = {
    _MESSAGE_ID: lambda message, now: str(message.message_id),
    "%SourceFileName%": _source_name,
    _SOURCE_EXTENSION: lambda message, now: PurePosixPath(_source_name(message, now) or "").suffix,
    "%SourceParty%": _read_property(BTS.SourceParty),
    "%SourcePartyQualifier%": _read_property(BTS.SourcePartyQualifier),
    "%DestinationParty%": _read_property(BTS.DestinationParty),
    "%DestinationPartyQualifier%": _read_property(BTS.DestinationPartyQualifier),
    _SEND_PORT: _send_port,
    _SEND_PORT_GROUP: lambda message, now: "",
    "%datetime%": lambda message, now: now.strftime("%Y-%m-%dT%H%M%S"),
    "%datetime_bts2000%": lambda message, now: now.strftime("%Y%m%d%H%M%S") + str(now.microsecond // 100_000),
    "%datetime.tz%": _format_local_time("%Y-%m-%dT%H%M%S"),
    "%time%": lambda message, now: now.strftime("%H%M%S"),
    "%time.tz%": _format_local_time("%H%M%S"),
}
