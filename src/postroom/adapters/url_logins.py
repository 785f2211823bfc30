"""Logins in URLs, such as ``//user:password@host``. Definitions must not contain passwords, and listings, logs and
errors must not show logins (SEC-14)."""

from __future__ import annotations

import re

from postroom.secrets.references import is_secret_name

HIDDEN = "(hidden)"

_LOGIN = re.compile(r"//[^/?#]*@")
_LOGIN_OF_HOST = re.compile(rf"[^/?#]*{_LOGIN.pattern}")
#: ``//user:password@`` and Oracle's ``thin:user/password@``.
_PASSWORD = re.compile(r"//[^/?#@:]*:[^/?#]*@|^jdbc:\w+:\w+:[^@/]+/[^@]*@")
#: Settings in a URL: ``;password=…`` of JDBC, ``?password=…`` of PostgreSQL.
_SETTING = re.compile(r"[;&?]\s*([^;&?=]+)=")


def has_login(url: str) -> bool:
    """Return True if the URL contains a user or a password before its host."""
    return _LOGIN_OF_HOST.match(url) is not None


def has_password(url: str) -> bool:
    """Return True if the URL of a database contains a password, in its login or its settings.

    >>> has_password("postgresql://etl@db/warehouse"), has_password("jdbc:sqlserver://db;user=etl;password=tiger")
    (False, True)
    """
    return _PASSWORD.search(url) is not None or any(map(is_secret_name, _SETTING.findall(url)))


def redact_login(url: str) -> str:
    """Return the URL with its login hidden.

    >>> redact_login("https://scott:tiger@example.org/in")
    'https://(hidden)@example.org/in'
    """
    return _LOGIN.sub(f"//{HIDDEN}@", url)


def remove_login(url: str) -> str:
    """Return the URL without its login."""
    return _LOGIN.sub("//", url)
