"""From the address in a message to where it goes: which adapter, which folder and name, which URL (SND-17, SND-18).

Whoever publishes a message writes its address, so it is not trusted: files stay under the folders that the port
declares, URLs under the beginnings that it declares, and what is hidden stays untouched.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.names import DEFAULT_NAME, MACRO, template_problems
from postroom.adapters.http.definition import url_problems
from postroom.errors import AddressRefused
from postroom.message import Context
from postroom.system_properties import BTS

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ADAPTERS = {"file": "file", "http": "http", "https": "http", "null": "null"}
_LOGIN = re.compile(r"//[^/?#]*@")


@dataclass(frozen=True, kw_only=True)
class ToFile:
    folder: Path
    name: str


@dataclass(frozen=True, kw_only=True)
class ToUrl:
    url: str


@dataclass(frozen=True, kw_only=True)
class ToNowhere:
    pass


Target = ToFile | ToUrl | ToNowhere


class Endpoint(NamedTuple):
    """An adapter and an address as listings show them."""

    kind: str
    uri: str


def target_of(context: Context, definition: Dynamic, home: Path) -> Target:
    """Where the message goes; AddressRefused if it does not say, or may not go there."""
    address = _address(context)
    match adapter_for(address, context.get(BTS.OutboundTransportType)):
        case "file":
            return _file(address, definition, home)
        case "http":
            return _url(address, definition)
        case _:
            return ToNowhere()


def endpoint_of(context: Context) -> Endpoint:
    """What a message says of its endpoint, right or wrong; a login in it does not show."""
    location = context.get(BTS.OutboundTransportLocation)
    address = location if isinstance(location, str) else ""
    try:
        kind = adapter_for(address, context.get(BTS.OutboundTransportType))
    except AddressRefused:
        kind = "dynamic"
    return Endpoint(kind, _LOGIN.sub("//(hidden)@", address))


def adapter_for(address: str, transport_type: object) -> str:
    """The kind of the adapter: the transport type says it, or else the prefix of the address does."""
    known = ", ".join(sorted(kind.upper() for kind in set(_ADAPTERS.values())))
    if transport_type:
        kind = str(transport_type).lower()
        if kind not in _ADAPTERS.values():
            raise AddressRefused(
                f"There is no adapter {transport_type!r} that a dynamic send port could use.",
                why="BTS.OutboundTransportType of the message asks for it.",
                hint=f"Known are {known}. Terminate the instance, and publish the message again with one of them.",
            )
        return kind
    scheme = _SCHEME.match(address)
    if scheme is None or scheme.group(1).lower() not in _ADAPTERS:
        raise AddressRefused(
            f"No adapter is known for the address {address!r}.",
            why="The message has no BTS.OutboundTransportType, and the prefix of its address tells no adapter.",
            hint=f"Addresses begin with file:, http: or https:; transport types are {known}.",
        )
    return _ADAPTERS[scheme.group(1).lower()]


def _address(context: Context) -> str:
    address = context.get(BTS.OutboundTransportLocation)
    if not isinstance(address, str) or not address.strip():
        raise AddressRefused(
            "The message has no address, and a dynamic send port has none of its own.",
            why="BTS.OutboundTransportLocation is not in its context.",
            hint="Terminate the instance, and publish the message again with an address.",
        )
    return address.strip()


# -- files ---------------------------------------------------------------------------------------------------------


def _file(address: str, definition: Dynamic, home: Path) -> ToFile:
    path = _path(address)
    folder, slash, name = path.rpartition("/")
    if MACRO.search(folder):
        raise _refused(address, "A macro stands in the folder; it may stand in the name of the file.")
    name = name or DEFAULT_NAME
    if problems := template_problems(name):
        raise _refused(address, " ".join(problems))
    wanted = home / (folder or slash or ".")
    # Links are followed now, and the file is written to where they lead now.
    real = Path(os.path.realpath(wanted))
    for allowed in definition.folders:
        root = Path(os.path.realpath(home / allowed))
        if real.is_relative_to(root):
            if any(part.startswith(".") for part in real.relative_to(root).parts):
                raise _refused(address, "It leads into a hidden folder.")
            return ToFile(folder=real, name=name)
    raise _refused(
        address,
        f"It leads to {real}, which is outside of the folders that the port may write to.",
        hint="Add the folder to folders= of the dynamic send port, apply, and resume; or terminate the instance.",
    )


def _path(address: str) -> str:
    """The path in a file: URI, without its escapes; an address without a prefix is a path already."""
    if "\0" in address:
        raise _refused(address, "It contains a NUL character.")
    if not (scheme := _SCHEME.match(address)):
        return address
    if scheme.group(1).lower() != "file":
        raise _refused(address, "It is not the address of a file, as BTS.OutboundTransportType says.")
    rest = address[scheme.end() :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise _refused(address, f"It names the host {host!r}; write file:///folder/name, or file:folder/name.")
        rest = slash + path
    # %da is an escape, but %datetime% is a macro.
    path = "".join(
        piece if MACRO.fullmatch(piece) else unquote(piece) for piece in re.split(f"({MACRO.pattern})", rest)
    )
    if "\0" in path:
        raise _refused(address, "It contains a NUL character.")
    return path


# -- URLs ----------------------------------------------------------------------------------------------------------


def _url(address: str, definition: Dynamic) -> ToUrl:
    if problems := url_problems("the address", address, credentials=False):
        raise AddressRefused(
            "The message cannot be posted to its address.",
            why=" ".join(problems),
            hint="Terminate the instance, and publish the message again with another address.",
        )
    if definition.urls is not None and not any(_begins_with(address, allowed) for allowed in definition.urls):
        raise _refused(
            address,
            "It is not under any of the URLs that the port may send to.",
            hint="Add its beginning to urls= of the dynamic send port, apply, and resume; or terminate the instance.",
        )
    return ToUrl(url=address)


def _begins_with(address: str, allowed: str) -> bool:
    given, prefix = urlsplit(address), urlsplit(allowed)
    if (given.scheme, given.hostname, _port(given.scheme, given.port)) != (
        prefix.scheme,
        prefix.hostname,
        _port(prefix.scheme, prefix.port),
    ):
        return False
    path, root = unquote(given.path), unquote(prefix.path).rstrip("/")
    if {".", ".."} & set(re.split(r"[/\\]", path)):
        return False
    return path == root or path.startswith(f"{root}/") or not root


def _port(scheme: str, port: int | None) -> int:
    return port or {"http": 80, "https": 443}[scheme]


def _refused(address: str, why: str, *, hint: str = "") -> AddressRefused:
    return AddressRefused(
        f"The message may not go to {_LOGIN.sub('//(hidden)@', address)!r}.",
        why=why,
        hint=hint or "Terminate the instance, and publish the message again with another address.",
    )
