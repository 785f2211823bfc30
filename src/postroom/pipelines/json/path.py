"""Where a property stands in a JSON document: ``customer.address.city``; a dot inside a key is written ``\\.``."""

from __future__ import annotations

import re

from postroom.pipelines.promotions import Promotions

#: A key; one that has to be escaped in JSON itself cannot be looked for.
_KEY = re.compile(r'(?:[^.\\"\x00-\x1f\ud800-\udfff]|\\\.)+')


def keys_of(path: str) -> tuple[str, ...] | None:
    """The keys of a dotted path from the outside in, or None if it cannot be read."""
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


#: How a split says that the interchange itself is the array.
ROOT = "$"


def keys_of_split(split: str) -> tuple[str, ...]:
    """The keys to the array, from the outside in; none for that of the root."""
    return () if split == ROOT else keys_of(split) or ()


def split_problems(split: str | None) -> list[str]:
    """What is wrong with the path of a split."""
    if split is None or split == ROOT:
        return []
    keys = keys_of(split)
    if keys is None:
        how = "write the keys to the array with a dot between them, or '$' for an interchange that is an array"
        return [f"The split {split!r} cannot be read; {how}."]
    if keys[0] == ROOT:
        return [f"The split {split!r} starts with '$'; write {'.'.join(keys[1:])!r}."]
    return []


def problems(promotions: Promotions) -> list[str]:
    """What is wrong with the paths themselves, and with one running through another."""
    found = []
    leaves: dict[tuple[str, ...], str] = {}
    for prop, path in promotions.entries:
        keys = keys_of(path)
        if keys is None:
            if path.strip():
                found.append(
                    f"The path {path!r} of {prop.dotted} cannot be read; "
                    r"write keys with a dot between them, and \. for a dot inside a key; no other \ and no quotes."
                )
        elif keys[0] == "$":
            found.append(
                f"The path {path!r} of {prop.dotted} starts with '$'; write {'.'.join(keys[1:]) or 'a key'!r}."
            )
        else:
            leaves[keys] = prop.dotted
    for keys, name in leaves.items():
        for length in range(1, len(keys)):
            if (outer := leaves.get(keys[:length])) is not None:
                found.append(
                    f"The path of {name} runs through {'.'.join(keys[:length])!r}, which is the value of {outer}; "
                    "it cannot be a value and an object at once."
                )
    return found
