"""What applications, ports, locations and hosts may be called."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 256

# A host's name becomes part of the names of tables and roles.
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def name_problem(name: object) -> str | None:
    """What is wrong with the name of an application, a port or a location; None if nothing is."""
    if not isinstance(name, str):
        return f"the name is {name!r}, which is not text"
    if not name.strip():
        return "the name is empty"
    if name != name.strip():
        return f"the name {name!r} begins or ends with a space"
    if len(name) > MAX_NAME_LENGTH:
        return f"the name has {len(name)} characters, but may have at most {MAX_NAME_LENGTH}"
    if _UNSEEN.search(name):
        return f"the name {name!r} has a control character in it"
    return None


def host_name_problem(name: object) -> str | None:
    """What is wrong with the name of a host; None if nothing is."""
    if isinstance(name, str) and _HOST.fullmatch(name):
        return None
    return f"{name!r} is not the name of a host: a letter, then up to 30 letters, digits and underscores"
