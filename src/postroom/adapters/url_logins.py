"""Logins in URLs, such as ``//user:password@host``. Listings, logs and errors must not show them (SEC-14)."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"

_LOGIN = re.compile(r"//[^/?#]*@")
_LOGIN_OF_HOST = re.compile(rf"[^/?#]*{_LOGIN.pattern}")


def has_login(url: str) -> bool:
    """Return True if the URL contains a user or a password before its host."""
    return _LOGIN_OF_HOST.match(url) is not None


def redact_login(url: str) -> str:
    """Return the URL with its login hidden.

    >>> redact_login("https://scott:tiger@example.org/in")
    'https://(hidden)@example.org/in'
    """
    return _LOGIN.sub(f"//{HIDDEN}@", url)


def remove_login(url: str) -> str:
    """Return the URL without its login."""
    return _LOGIN.sub("//", url)
