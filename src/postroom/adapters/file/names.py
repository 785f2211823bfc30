"""What a written file is called: a template with macros, filled from the message, and always a plain name.

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

The spellings are BizTalk's, except for `%SourceExtension%` and those of ports, which it lacks. As there, a macro whose
property the message does not have stays in the name as it is; a macro that does not exist is refused when the
application is loaded.

A port may get a message twice, directly and through a group (SUB-15). A copy that comes through a group has the group's
name before the extension, unless the template says where it is to stand: each copy is a file of its own, and a repeat
of it still has the same name.
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
# What is a separator somewhere, cannot be in a name on some file system, or cannot be seen.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff/\\<>:"|?*]')
_RESERVED = re.compile(r"(CON|PRN|AUX|NUL|CLOCK\$|COM[0-9]|LPT[0-9])(\..*)?", re.IGNORECASE)
_LONGEST_NAME = 255
_LONGEST_EXTENSION = 32
# In the form of a name: any text at all.
_ANYTHING = "%%"


def template_problems(template: str) -> list[str]:
    """What is wrong with a template, one sentence each."""
    found = [
        f"name {template!r}: there is no macro {macro}; known are {', '.join(sorted(_MACROS))}."
        for macro in dict.fromkeys(MACRO.findall(template))
        if macro not in _MACROS
    ]
    if not template.strip():
        found.append("name is empty.")
    if unsafe := _UNSAFE.search(template):
        found.append(f"name {template!r} contains {unsafe.group()!r}, which a file's name may not.")
    if template.startswith("."):
        found.append(f"name {template!r} begins with a dot: the file would be hidden.")
    return found


def is_unique(template: str) -> bool:
    """Whether two messages can never get the same name."""
    return _MESSAGE_ID in template


def file_name(template: str, message: Message, now: datetime, group: str | None = None) -> str:
    """The template filled in, for a copy that comes through ``group`` or through none. Whatever the values contain, the
    result is one visible name inside the folder."""

    def value(macro: re.Match[str]) -> str:
        if macro.group() == _SEND_PORT_GROUP:
            return "" if group is None else _distinct(group)
        text = _MACROS[macro.group()](message, now) if macro.group() in _MACROS else None
        return macro.group() if text is None else text

    name = _UNSAFE.sub("_", MACRO.sub(value, template))
    if group is not None and _SEND_PORT_GROUP not in template:
        extension = PurePosixPath(name).suffix
        name = f"{name[: len(name) - len(extension)]}-{_distinct(group)}{extension}"
    return safe_name(name)


def may_coincide(one: str, one_port: str, other: str, other_port: str) -> bool:
    """Whether files of two send ports can get the same name from one message, as far as the templates tell. Only of
    names that carry the message's id: these are what a port takes for its own."""
    if not is_unique(one) or not is_unique(other):
        return False
    return any(_meet(a, b) for a in _forms(one, one_port) for b in _forms(other, other_port))


def _forms(template: str, port: str) -> Iterator[tuple[str, ...]]:
    """What names of a port look like: characters, the message's id, and ``_ANYTHING``. An extension is there or not."""
    for extension in ("", ".%datetime%") if _SOURCE_EXTENSION in template else ("",):
        form: list[str] = []
        for piece in re.split(f"({MACRO.pattern})", template.replace(_SOURCE_EXTENSION, extension)):
            if piece == _MESSAGE_ID:
                form.append(piece)
            elif piece == _SEND_PORT:
                form.extend(_distinct(port))
            elif MACRO.fullmatch(piece):
                form.append(_ANYTHING)
            else:
                form.extend(piece)
        yield tuple(form)


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether there is a name of both forms."""
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
            # No other value has the id in it.
            todo += [(i + 1, j)] if one[i] != _MESSAGE_ID else []
            todo += [(i, j + 1)] if other[j] != _MESSAGE_ID else []
        elif one[i] == other[j]:
            todo.append((i + 1, j + 1))
    return False


def _distinct(name: str) -> str:
    """The name of a port or a group as a part of a file's name: of two names, never the same."""
    plain = _UNSAFE.sub("_", name)
    return plain if plain == name else f"{plain}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def safe_name(name: str) -> str:
    """``name`` without what would lead out of the folder, hide the file, or be refused by a file system."""
    name = _UNSAFE.sub("_", name)
    if not name or name.startswith("."):
        name = f"_{name[1:]}"
    if name.endswith((".", " ")):
        name = f"{name[:-1]}_"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    return _shortened(name)


def _shortened(name: str) -> str:
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    # Two long names that differ only in what is cut off must stay two names.
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    extension = PurePosixPath(name).suffix
    if len(extension.encode()) > _LONGEST_EXTENSION:
        extension = ""
    room = _LONGEST_NAME - len(digest) - len(extension.encode()) - 1
    head = name[: len(name) - len(extension)].encode()[:room].decode(errors="ignore")
    return f"{head}~{digest}{extension}"


def _source_name(message: Message, now: datetime) -> str | None:
    received = message.context.get(FILE.ReceivedFileName)
    return None if received is None else re.split(r"[/\\]", str(received))[-1]


def _source_extension(message: Message, now: datetime) -> str:
    return PurePosixPath(_source_name(message, now) or "").suffix


def _send_port(message: Message, now: datetime) -> str | None:
    name = message.context.get(BTS.SPName)
    return None if name is None else _distinct(str(name))


def _of_property(prop: Property) -> Callable[[Message, datetime], str | None]:
    def read(message: Message, now: datetime) -> str | None:
        value = message.context.get(prop)
        return None if value is None else str(value)

    return read


def _offset(now: datetime) -> str:
    offset = now.utcoffset() or timedelta()
    minutes = int(abs(offset).total_seconds()) // 60
    return f"{'-' if offset < timedelta() else '+'}{minutes // 60}{minutes % 60:02d}"


def _local(form: str) -> Callable[[Message, datetime], str]:
    def read(message: Message, now: datetime) -> str:
        local = now.astimezone()
        return local.strftime(form) + _offset(local)

    return read


_MACROS: dict[str, Callable[[Message, datetime], str | None]] = {
    _MESSAGE_ID: lambda message, now: str(message.message_id),
    "%SourceFileName%": _source_name,
    _SOURCE_EXTENSION: _source_extension,
    "%SourceParty%": _of_property(BTS.SourceParty),
    "%SourcePartyQualifier%": _of_property(BTS.SourcePartyQualifier),
    "%DestinationParty%": _of_property(BTS.DestinationParty),
    "%DestinationPartyQualifier%": _of_property(BTS.DestinationPartyQualifier),
    _SEND_PORT: _send_port,
    _SEND_PORT_GROUP: lambda message, now: "",
    "%datetime%": lambda message, now: now.strftime("%Y-%m-%dT%H%M%S"),
    "%datetime_bts2000%": lambda message, now: now.strftime("%Y%m%d%H%M%S") + str(now.microsecond // 100_000),
    "%datetime.tz%": _local("%Y-%m-%dT%H%M%S"),
    "%time%": lambda message, now: now.strftime("%H%M%S"),
    "%time.tz%": _local("%H%M%S"),
}
