"""Resolves the address in a message to an adapter and a file or URL (SND-17, SND-18).

The publisher of a message writes its address, so the address is not trusted. Files must be below the folders, and URLs
below the prefixes, that the port declares. Hidden folders are rejected.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.names import DEFAULT_NAME, MACRO, find_template_problems
from postroom.adapters.http.definition import find_url_problems
from postroom.adapters.url_logins import redact_login
from postroom.errors import AddressRefused
from postroom.message import Context
from postroom.system_properties import BTS

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ADAPTERS = {"file": "file", "http": "http", "https": "http", "null": "null"}


@dataclass(frozen=True, kw_only=True)
class FileTarget:
    folder: Path
    name: str


@dataclass(frozen=True, kw_only=True)
class UrlTarget:
    url: str


@dataclass(frozen=True, kw_only=True)
class NullTarget:
    pass


Target = FileTarget | UrlTarget | NullTarget


class TransportAddress(NamedTuple):
    """An adapter and an address, for listings."""

    kind: str
    uri: str


def resolve_target(context: Context, definition: Dynamic, home: Path) -> Target:
    """Return the target of a message. Raise AddressRefused if it has no address, or none that the port allows."""
    address = _get_address(context)
    match _choose_adapter(address, context.get(BTS.OutboundTransportType)):
        case "file":
            return _resolve_file(address, definition, home)
        case "http":
            return _resolve_url(address, definition)
        case _:
            return NullTarget()


def get_transport_address(context: Context) -> TransportAddress:
    """Return the endpoint that a message names, valid or not. A login in the address is redacted."""
    location = context.get(BTS.OutboundTransportLocation)
    address = location if isinstance(location, str) else ""
    try:
        kind = _choose_adapter(address, context.get(BTS.OutboundTransportType))
    except AddressRefused:
        kind = "dynamic"
    return TransportAddress(kind, redact_login(address))


def _choose_adapter(address: str, transport_type: object) -> str:
    """Return the kind of the adapter, by the transport type or else by the scheme of the address."""
    known = ", ".join(sorted(kind.upper() for kind in set(_ADAPTERS.values())))
    if transport_type:
        kind = str(transport_type).lower()
        if kind not in _ADAPTERS.values():
            raise AddressRefused(
                f"A dynamic send port has no adapter {transport_type!r}.",
                why="It is the value of BTS.OutboundTransportType of the message.",
                hint=f"The adapters are {known}. Terminate the instance and publish the message again.",
            )
        return kind
    scheme = _SCHEME.match(address)
    if scheme is None or scheme.group(1).lower() not in _ADAPTERS:
        raise AddressRefused(
            f"There is no adapter for the address {address!r}.",
            why="The message has no BTS.OutboundTransportType, and the scheme of its address has no adapter.",
            hint=f"Addresses start with file:, http: or https:; transport types are {known}.",
        )
    return _ADAPTERS[scheme.group(1).lower()]


def _get_address(context: Context) -> str:
    address = context.get(BTS.OutboundTransportLocation)
    if not isinstance(address, str) or not address.strip():
        raise AddressRefused(
            "The message has no address, and a dynamic send port has no default address.",
            why="BTS.OutboundTransportLocation is not in its context.",
            hint="Terminate the instance, and publish the message again with an address.",
        )
    return address.strip()


# -- files ---------------------------------------------------------------------------------------------------------


def _resolve_file(address: str, definition: Dynamic, home: Path) -> FileTarget:
    path = _parse_path(address)
    folder, slash, name = path.rpartition("/")
    if MACRO.search(folder):
        raise _reject(address, "The folder contains a macro; only the file name may contain macros.")
    name = name or DEFAULT_NAME
    if problems := find_template_problems(name):
        raise _reject(address, " ".join(problems))
    wanted = home / (folder or slash or ".")
    # Links are resolved here, and the file is written to the resolved folder.
    real = Path(os.path.realpath(wanted))
    for allowed in definition.folders:
        root = Path(os.path.realpath(home / allowed))
        if real.is_relative_to(root):
            if any(part.startswith(".") for part in real.relative_to(root).parts):
                raise _reject(address, "It leads into a hidden folder.")
            return FileTarget(folder=real, name=name)
    raise _reject(
        address,
        f"It leads to {real}, which is outside the folders that the port may write to.",
        hint="Add the folder to folders= of the dynamic send port, apply, and resume; or terminate the instance.",
    )


def _parse_path(address: str) -> str:
    """Return the unescaped path of a file: URI. An address without a scheme is a path."""
    if "\0" in address:
        raise _reject(address, "It contains a NUL character.")
    if not (scheme := _SCHEME.match(address)):
        return address
    if scheme.group(1).lower() != "file":
        raise _reject(address, "BTS.OutboundTransportType is FILE, but it is not the address of a file.")
    rest = address[scheme.end() :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise _reject(address, f"It names the host {host!r}; write file:///folder/name, or file:folder/name.")
        rest = slash + path
    # %da is an escape, but %datetime% is a macro.
    path = "".join(
        piece if MACRO.fullmatch(piece) else unquote(piece) for piece in re.split(f"({MACRO.pattern})", rest)
    )
    if "\0" in path:
        raise _reject(address, "It contains a NUL character.")
    return path


# -- URLs ----------------------------------------------------------------------------------------------------------


def _resolve_url(address: str, definition: Dynamic) -> UrlTarget:
    if problems := find_url_problems("the address", address):
        raise AddressRefused(
            "The message cannot be posted to its address.",
            why=" ".join(problems),
            hint="Terminate the instance, and publish the message again with another address.",
        )
    if definition.urls is not None and not any(_is_below(address, allowed) for allowed in definition.urls):
        raise _reject(
            address,
            "It is not below any of the URLs that the port may send to.",
            hint="Add its prefix to urls= of the dynamic send port, apply, and resume; or terminate the instance.",
        )
    return UrlTarget(url=address)


def _is_below(address: str, allowed: str) -> bool:
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


def _reject(address: str, why: str, *, hint: str = "") -> AddressRefused:
    return AddressRefused(
        f"The message may not be sent to {redact_login(address)!r}.",
        why=why,
        hint=hint or "Terminate the instance, and publish the message again with another address.",
    )
