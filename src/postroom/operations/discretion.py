"""What listings must not show: the headers of a request and the login of a proxy may be secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"

_LOGIN = re.compile(r"//[^/?#]*@")


def discreet(adapter: Mapping[str, Any]) -> dict[str, Any]:
    """A stored adapter as it may be shown to anybody."""
    return {key: _discreet(key, value) for key, value in adapter.items()}


def _discreet(key: str, value: Any) -> Any:
    if key == "headers" and isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if key == "proxy" and isinstance(value, str):
        return _LOGIN.sub(f"//{HIDDEN}@", value)
    return value
