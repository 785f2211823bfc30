"""Checks the send port groups of an application (SPT-10, SPT-14)."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from postroom.adapters.dynamic.definition import Dynamic
from postroom.application.checks.fields import description_problems, filter_problems, name_problems, state_problems
from postroom.application.declarations import Declarations, Declared
from postroom.errors import Problem
from postroom.properties import Property


def group_problems(application: Declarations, known: list[Property]) -> Iterator[Problem]:
    """Yield every problem of every group."""
    ports = {port.name: port for port in application.send_ports if isinstance(port.name, str)}
    for group in application.send_port_groups:
        texts = [
            *(f"send port group {group.name!r}: {text}" for text in _problems(group, ports, known)),
            *name_problems("send port group", group.name),
        ]
        if isinstance(group.name, str) and group.name in ports:
            position = ports[group.name].position
            texts.append(
                f"a send port and a send port group are both named {group.name!r}; the port is in "
                f"{position.file}:{position.line}. Give one of them another name."
            )
        yield from map(group.position.problem, texts)


def _problems(group: Declared, ports: dict[str, Declared], known: list[Property]) -> Iterator[str]:
    yield from _member_problems(group.members, ports)
    yield from filter_problems(group.filter, known)
    yield from state_problems(group.state)
    yield from description_problems(group.description)


def _member_problems(members: Sequence[object], ports: dict[str, Declared]) -> Iterator[str]:
    names = []
    for member in members:
        name = getattr(member, "name", member)
        if not isinstance(name, str):
            yield f"members has {member!r}, which is neither a send port nor the name of one."
            continue
        names.append(name)
        if name not in ports:
            yield f"there is no send port {name!r} in this application{_suggest_name(name, ports)}."
        elif isinstance(ports[name].adapter, Dynamic):
            yield f"send port {name!r} is dynamic; only static send ports can be members of a group."
    yield from (f"send port {name!r} is a member {count} times." for name, count in Counter(names).items() if count > 1)


def _suggest_name(name: str, ports: Collection[str]) -> str:
    near = difflib.get_close_matches(name, ports, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
