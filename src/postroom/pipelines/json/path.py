"""Paths to values in a JSON document: ``customer.address.city``. A dot inside a key is written ``\\.``."""

from __future__ import annotations

import re

from postroom.pipelines.promotions import Promotions

#: A key. Keys that need escapes in JSON are not supported.
_KEY = re.compile(r'(?:[^.\\"\x00-\x1f\ud800-\udfff]|\\\.)+')


def parse_path(path: str) -> tuple[str, ...] | None:
    """Return the keys of a dotted path from the outside in, or None if it is malformed."""
    keys = []
    position = 0
    while (match := _KEY.match(path, position)) is not None:
        keys.append(match.group().replace("\\.", "."))
        if match.end() == len(path):
            return tuple(keys)
        if path[match.end()] != ".":
            return None
        position = match.end() + 1
    return None


#: The split of an interchange that is the array itself.
ROOT = "$"


def parse_split(split: str) -> tuple[str, ...]:
    """Return the keys to the array from the outside in. There are none if the interchange is the array."""
    return () if split == ROOT else parse_path(split) or ()


def overlaps(path: str, other: str) -> bool:
    """Return True if one of two paths is the other, or leads through it."""
    keys, others = parse_path(path) or (), parse_path(other) or ()
    shorter = min(len(keys), len(others))
    return keys[:shorter] == others[:shorter]


def split_problems(split: str | None, *, what: str = "split") -> list[str]:
    """Describe what is wrong with the path of the array of documents. ``what`` is the name of the setting."""
    if split is None or split == ROOT:
        return []
    keys = parse_path(split)
    if keys is None:
        how = "write the keys to the array with a dot between them, or '$' for an interchange that is an array"
        return [f"The {what} {split!r} cannot be read; {how}."]
    if keys[0] == ROOT:
        return [f"The {what} {split!r} starts with '$'; write {'.'.join(keys[1:])!r}."]
    return []


def problems(promotions: Promotions) -> list[str]:
    """Describe what is wrong with the paths, including one that leads through the value of another."""
    found = []
    leaves: dict[tuple[str, ...], str] = {}
    for prop, path in promotions.entries:
        keys = parse_path(path)
        if keys is None:
            if path.strip():
                found.append(
                    f"The path {path!r} of {prop.dotted_name} cannot be read; "
                    r"write keys with a dot between them, and \. for a dot inside a key; no other \ and no quotes."
                )
        elif keys[0] == "$":
            found.append(
                f"The path {path!r} of {prop.dotted_name} starts with '$'; write {'.'.join(keys[1:]) or 'a key'!r}."
            )
        else:
            leaves[keys] = prop.dotted_name
    for keys, name in leaves.items():
        for length in range(1, len(keys)):
            if (outer := leaves.get(keys[:length])) is not None:
                found.append(
                    f"The path of {name} leads through {'.'.join(keys[:length])!r}, which is the value of {outer}; "
                    "it cannot be a value and an object at once."
                )
    return found
