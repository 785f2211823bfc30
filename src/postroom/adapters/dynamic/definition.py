"""Where the messages of a dynamic send port may go, as an application declares it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters.contract import SendAdapter
from postroom.adapters.definition import AdapterDefinition
from postroom.adapters.file.definition import path_problems
from postroom.adapters.http.definition import timeout_problems, url_problems
from postroom.clock import Clock, system_clock


class Dynamic(AdapterDefinition):
    """Sends each message to the address in its own context (SND-17).

    Files are written under one of ``folders`` (the home folder by default) and nowhere else. ``urls`` are beginnings of
    the URLs that messages may be posted to; without them any http or https URL will do.
    """

    transport_type: ClassVar[str] = "DYNAMIC"
    is_dynamic: ClassVar[bool] = True

    kind: Literal["dynamic"] = "dynamic"
    folders: tuple[str, ...]
    urls: tuple[str, ...] | None
    timeout: float

    def __init__(
        self,
        *,
        folders: Sequence[str | os.PathLike[str]] = (".",),
        urls: Sequence[str] | None = None,
        timeout: float = 30.0,
        kind: Literal["dynamic"] = "dynamic",
    ) -> None:
        given = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in folders]
        # A text alone would be taken for the list of its characters.
        super().__init__(folders=folders if isinstance(folders, str) else given, urls=urls, timeout=timeout, kind=kind)

    def problems(self) -> list[str]:
        found = [text for folder in self.folders for text in path_problems("folders", folder)]
        for url in self.urls or ():
            found += url_problems("urls", url, credentials=False)
            if "?" in url:
                found.append(f"urls {url!r} has a query ('?…'); give the beginning of a path.")
        return found + timeout_problems(self.timeout)

    def address(self, home: Path) -> str:
        return "dynamic:"

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # What only this adapter needs is imported only for it.
        from postroom.adapters.dynamic.send import DynamicSender

        return DynamicSender(self, home=home, clock=clock)
