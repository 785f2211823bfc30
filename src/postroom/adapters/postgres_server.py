"""A PostgreSQL server that an adapter connects to: the checks of its URL and settings, and new connections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from postroom.adapters.url_logins import has_password, remove_login
from postroom.secrets.references import Secret, find_secret_problems, read_options

if TYPE_CHECKING:
    import psycopg

PASSWORD_IN_URL = (
    "contains a password, which would be stored; write options={'password': postroom.secret(env='NAME')} instead."
)

#: The names of columns. A single one may be given without a list.
Names = Annotated[
    Sequence[str], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given), AfterValidator(tuple)
]

_SETTINGS: Mapping[str, str] = {"connect_timeout": "10", "application_name": "postroom"}


def find_url_problems(url: str, options: Mapping[str, str | Secret]) -> list[str]:
    """Return the problems of a URL of PostgreSQL and of the settings of libpq, one sentence each."""
    found = [f"url {PASSWORD_IN_URL}"] if has_password(url) else []
    found += find_secret_problems("option", options)
    if not re.match(r"postgres(ql)?://", url):
        return [*found, "url must start with postgresql://."]
    return found + find_libpq_problems(url, options)


def find_libpq_problems(url: str, options: Mapping[str, str | Secret]) -> list[str]:
    """Return what libpq rejects, one sentence each."""
    import psycopg  # imported only where it is needed
    from psycopg.pq import Conninfo

    known = {setting.keyword.decode() for setting in Conninfo.get_defaults()}
    found = [f"option {name!r} is not a setting of libpq." for name in options if name not in known]
    try:
        Conninfo.parse(url.encode())
    except psycopg.Error as error:
        # A quoted text may be a password.
        reason = re.sub('"[^"]*"', '"…"', str(error).strip())
        found.append(f"url is not valid: {reason}.")
    return found


def format_address(url: str) -> str:
    """Return the URL without its login, and without its settings, which may contain a password."""
    return remove_login(url).partition("?")[0]


def open_connection(url: str, options: Mapping[str, str | Secret]) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect with the present values of secrets. Raise psycopg.Error or SecretUnavailable."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    return psycopg.connect(make_conninfo(url, **{**_SETTINGS, **read_options(options)}), autocommit=True)


def first_line(error: Exception) -> str:
    """Return the reason of an error of PostgreSQL. Further lines may contain values of the row."""
    return str(error).strip().partition("\n")[0]
