"""The definition of a dynamic send port: the folders and URLs that its messages may be sent to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from postroom.adapters.contract import SendAdapter, SendDefinition
from postroom.adapters.file.definition import find_path_problems
from postroom.adapters.http.definition import DEFAULT_CONNECTIONS, find_timeout_problems, find_url_problems
from postroom.clock import Clock, system_clock
from postroom.stored_definitions import TextPaths


class Dynamic(SendDefinition):
    """Sends each message to the address in its own context (SND-17).

    Files are written only below one of ``folders`` (default: the home folder). ``urls`` are prefixes of the URLs that
    messages may be posted to. Without ``urls`` every http and https URL is allowed.
    """

    transport_type: ClassVar[str] = "DYNAMIC"

    kind: Literal["dynamic"] = "dynamic"
    folders: TextPaths = Field(default=(".",), validate_default=True)
    urls: Sequence[str] | None = None
    timeout: float = 30.0

    def problems(self) -> list[str]:
        found = [text for folder in self.folders for text in find_path_problems("folders", folder)]
        for url in self.urls or ():
            found += find_url_problems("urls", url)
            if "?" in url:
                found.append(f"urls {url!r} has a query ('?…'); write a path prefix.")
        return found + find_timeout_problems(self.timeout)

    def address(self, home: Path) -> str:
        return "dynamic:"

    @property
    def send_limit(self) -> int:
        return DEFAULT_CONNECTIONS

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # Import the dependencies of this adapter only when it is used.
        from postroom.adapters.dynamic.send import DynamicSender

        return DynamicSender(self, home=home, clock=clock)
