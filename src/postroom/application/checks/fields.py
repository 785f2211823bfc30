"""Checks single fields of a declaration. Each problem is one sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, get_args

from postroom.adapters import AdapterDefinition, ReceiveDefinition, SendDefinition
from postroom.adapters.kinds import find_registration_problem
from postroom.application.definition import SendPortState
from postroom.errors import DefinitionError
from postroom.filters.expression import MAX_GROUPS, Filter
from postroom.filters.text import parse
from postroom.properties import Property

#: As long as BizTalk allows (SPT-14).
MAX_DESCRIPTION_LENGTH = 256
MAX_NAME_LENGTH = 256

# A host's name becomes part of the names of tables and roles.
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def name_problems(what: str, name: object) -> Iterator[str]:
    """Yield the problems of the name of an application, a port, a group or a location."""
    if not isinstance(name, str):
        yield f"{what}: the name is {name!r}, which is not text."
    elif not name.strip():
        yield f"{what}: the name is empty."
    elif name != name.strip():
        yield f"{what}: the name {name!r} starts or ends with a space."
    elif len(name) > MAX_NAME_LENGTH:
        yield f"{what}: the name has {len(name)} characters, but may have at most {MAX_NAME_LENGTH}."
    elif _CONTROL.search(name):
        yield f"{what}: the name {name!r} has a control character in it."


def host_name_problems(name: object) -> Iterator[str]:
    if not isinstance(name, str) or not _HOST.fullmatch(name):
        yield f"{name!r} is not the name of a host: a letter, then up to 30 letters, digits and underscores."


def adapter_problems(adapter: object, verb: Literal["receive", "send"]) -> Iterator[str]:
    """Yield the problems of an adapter of a receive location, or of a send port."""
    if not isinstance(adapter, AdapterDefinition):
        yield f"{adapter!r} is not an adapter, such as adapters.File(...)."
        return
    if (problem := find_registration_problem(type(adapter), adapter.kind)) is not None:
        yield problem
    if not isinstance(adapter, ReceiveDefinition if verb == "receive" else SendDefinition):
        yield f"the adapter {adapter.kind!r} cannot {verb}."
    yield from (f"adapter: {text}" for text in adapter.problems())
    if verb == "receive" and isinstance(adapter, ReceiveDefinition):
        yield from (f"adapter: {text}" for text in adapter.receive_problems())


def host_problems(host: object, hosts: Collection[str]) -> Iterator[str]:
    if not isinstance(host, str) or host.lower() not in hosts:
        yield f"there is no host {host!r}; declare it with app.host({host!r})."


def filter_problems(filter: object, known: list[Property]) -> Iterator[str]:
    if isinstance(filter, str):
        try:
            filter = parse(filter, known)
        except DefinitionError as error:
            yield "filter: " + "\n".join(line for line in (f"{error.what} {error.hint}".rstrip(), error.why) if line)
            return
    if isinstance(filter, Filter):
        if len(filter.groups) >= MAX_GROUPS:
            # The port's subscription has one more group, for messages that name its transport.
            yield f"filter: it has {len(filter.groups):,} groups, but a port's may have at most {MAX_GROUPS - 1:,}."
    elif isinstance(filter, bool):
        # Comparing two properties gives True or False, not a filter.
        yield f"filter is {filter}; a property has to be compared with a value, as in Region == 'EU'."
    elif filter is not None:
        yield f"filter is {filter!r}, but must be a comparison of properties, or its text."


def state_problems(state: object) -> Iterator[str]:
    if state not in get_args(SendPortState):
        yield f"state is {state!r}, but must be one of {', '.join(get_args(SendPortState))}."


def description_problems(description: object) -> Iterator[str]:
    if not isinstance(description, str):
        yield f"description is {description!r}, which is not text."
    elif len(description) > MAX_DESCRIPTION_LENGTH:
        yield f"description has {len(description)} characters, but may have at most {MAX_DESCRIPTION_LENGTH}."
    elif not description.isprintable():
        yield f"description {description!r} has a control character in it."
