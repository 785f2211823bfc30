"""References to secrets: environment variables and files, whose values are read only where they are used.

A definition contains references, and never values. So secrets are neither in the database nor in logs, plans and
listings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from postroom.errors import SecretUnavailable

_MAX_BYTES = 65_536
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The names of settings and headers whose values are secrets.
_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|credential|jaas|(^|[^a-z])(token|cookie|authorization)$|bearer|access.?token"
    r"|(api|access|account|private|shared|auth).?key",
    re.IGNORECASE,
)
#: Endings of names whose values only describe a secret, or where it is.
_DESCRIPTION = re.compile(r"(file|path|location|type|class|id|url|endpoint|provider|algorithm|factory)$", re.IGNORECASE)


class Secret(BaseModel):
    """A reference to a secret. Create it with ``postroom.secret``."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["secret"] = "secret"
    env: str | None = None
    file: str | None = None
    prefix: str = ""

    @model_validator(mode="before")
    @classmethod
    def _reject_literal(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError('a literal is not allowed here; write postroom.secret(env="NAME") or secret(file="/path")')
        return value

    def __str__(self) -> str:
        return f"secret (env={self.env})" if self.env is not None else f"secret (file={self.file})"

    def problems(self) -> list[str]:
        """Return the problems of the reference, one sentence each."""
        if (self.env is None) == (self.file is None):
            return ["a secret needs one of env and file: postroom.secret(env='NAME')."]
        if self.env is not None and not _VARIABLE.fullmatch(self.env):
            # It may be the secret itself, so it is not shown.
            return ["env of a secret is not the name of an environment variable, such as ORDERS_PASSWORD."]
        if self.file is not None and not Path(self.file).is_absolute():
            return [f"file of a secret is {self.file!r}; write the absolute path on the machines that use it."]
        return []

    def read(self) -> str:
        """Return the value, as it is now. Raise SecretUnavailable if the variable or the file is missing or empty."""
        value = os.environ.get(self.env, "") if self.env is not None else self._read_file()
        if value:
            return self.prefix + value
        if self.env is not None:
            raise SecretUnavailable(
                f"The secret in the environment variable {self.env} is missing.",
                why="The variable is not set in this process, or is empty.",
                hint="Set it, and start the process again.",
            )
        raise SecretUnavailable(f"The secret in the file {self.file} is missing: the file is empty.")

    def _read_file(self) -> str:
        path = Path(self.file or "")
        try:
            # Reading a pipe or a device could block.
            if not path.is_file():
                raise FileNotFoundError("it does not exist, or is not a file")
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise OSError(f"it has more than {_MAX_BYTES:,} bytes")
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
            raise SecretUnavailable(
                f"The secret in the file {self.file} cannot be read: {why}.",
                hint="Correct the file; it is read again at the next attempt.",
            ) from None
        # Editors and most tools end a file with a line break.
        return text.removesuffix("\n").removesuffix("\r")


def secret(*, env: str | None = None, file: str | os.PathLike[str] | None = None, prefix: str = "") -> Secret:
    """Return a reference to a secret in an environment variable or in a file, of the process that uses it.

    The value of a file is read again for each use, without a line break at its end. ``prefix`` is put before the value.

        headers={"Authorization": postroom.secret(env="ORDERS_TOKEN", prefix="Bearer ")}
    """
    return Secret(env=env, file=None if file is None else os.fspath(file), prefix=prefix)


def read_value(value: str | Secret) -> str:
    """Return a literal as it is, or the present value of a secret."""
    return value.read() if isinstance(value, Secret) else value


def read_options(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """Return options with the present values of their secrets."""
    return {name: read_value(value) for name, value in options.items()}


def is_secret_name(name: str) -> bool:
    """Return True if a setting or header of this name must be a reference."""
    return _SECRET_NAME.search(name) is not None and _DESCRIPTION.search(name) is None


def find_secret_problems(what: str, settings: Mapping[str, object]) -> list[str]:
    """Return the problems of settings: literals that must be references, and wrong references. Values are not shown."""
    found = []
    for name, value in settings.items():
        if isinstance(value, Secret):
            found += [f"{what} {name!r}: {problem}" for problem in value.problems()]
        elif isinstance(value, str) and is_secret_name(name):
            instead = 'postroom.secret(env="NAME") or postroom.secret(file="/path")'
            found.append(f"{what} {name!r} is a secret, and literals are stored; write {instead}.")
    return found


def find_secrets(value: object) -> Iterator[Secret]:
    """Yield all references in a definition, or in a stored definition."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, BaseModel):
        yield from find_secrets([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, Mapping):
        if value.get("kind") == "secret":
            yield Secret(**value)
        else:
            yield from find_secrets(list(value.values()))
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            yield from find_secrets(each)


def find_unavailable(value: object) -> list[SecretUnavailable]:
    """Return an error for each reference in a definition that cannot be read in this process."""
    found = []
    for reference in dict.fromkeys(find_secrets(value)):
        try:
            reference.read()
        except SecretUnavailable as error:
            found.append(error)
    return found
