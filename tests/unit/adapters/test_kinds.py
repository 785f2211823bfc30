"""Adapters as they are stored, and adapters of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import Application, adapters
from postroom.adapters import kinds
from postroom.application import ApplicationDefinition
from postroom.errors import DefinitionError, DefinitionRefused
from tests.support.adapter_package import folder_for_packages, install_package

PIGEON = """
from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters import Null, SendAdapter, SendDefinition
from postroom.clock import Clock, system_clock


class Pigeon(SendDefinition):
    transport_type: ClassVar[str] = "PIGEON"
    kind: Literal["pigeon"] = "pigeon"
    loft: str

    def address(self, home: Path) -> str:
        return f"pigeon:{self.loft}"

    def problems(self) -> list[str]:
        return [] if self.loft else ["loft is empty."]

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        return Null().make_sender(home)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder for installed packages."""
    with folder_for_packages(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    "stored",
    [
        {"kind": "http", "url": "https://user:sesame@example.com", "settings": {"password": "sesame"}},
        {"kind": "file", "path": ["sesame"]},
        {"kind": "carrier pigeon", "password": "sesame"},
        {"kind": ["sesame"]},
        {"password": "sesame"},
    ],
)
def test_an_invalid_stored_definition_is_reported_without_its_values(stored: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as refused:
        kinds.load_send_adapter(stored)
    said = " ".join(filter(None, (refused.value.why, refused.value.hint)))
    assert "sesame" not in said


def test_an_adapter_of_a_package_is_declared_stored_and_loaded(installed: Path) -> None:
    install_package(installed, "acme_pigeons", PIGEON, {"pigeon": "acme_pigeons:Pigeon"})
    pigeon = importlib.import_module("acme_pigeons").Pigeon(loft="Ghent")
    app = Application("birds")
    app.send_port("Out", pigeon, filter="exists(BTS.ReceivePortName)")
    stored = app.definition().to_stored()
    assert stored["send_ports"][0]["adapter"] == {"kind": "pigeon", "loft": "Ghent"}
    [port] = ApplicationDefinition.from_stored(stored).send_ports
    assert port.adapter == pigeon
    assert kinds.load_send_adapter({"kind": "pigeon", "loft": "Ghent"}) == pigeon
    assert kinds.get_send_type("pigeon").transport_type == "PIGEON"


def test_plan_reports_all_problems_of_adapters_that_hosts_cannot_load(installed: Path) -> None:
    (installed / "birds_in_the_app.py").write_text(PIGEON, encoding="utf-8")
    pigeon = importlib.import_module("birds_in_the_app").Pigeon
    app = Application("birds")
    app.send_port("Out", pigeon(loft=""))
    app.receive_port("In").location("loft", pigeon(loft="Ghent"))
    with pytest.raises(DefinitionRefused) as refused:
        app.definition()
    said = str(refused.value)
    assert said.count("There is no adapter of the kind 'pigeon'.") == 2
    assert "No package with an entry point 'pigeon' in the group 'postroom.adapters' is installed here." in said
    assert "the adapter 'pigeon' cannot receive." in said
    assert "adapter: loft is empty." in said


def test_a_package_cannot_replace_an_adapter_of_postroom(installed: Path) -> None:
    install_package(
        installed,
        "acme_files",
        PIGEON.replace('"pigeon"', '"file"').replace("Pigeon", "OwnFile"),
        {"file": "acme_files:OwnFile"},
    )
    own_file = importlib.import_module("acme_files").OwnFile
    assert kinds.find_adapter_type("file") is adapters.File
    app = Application("birds")
    app.send_port("Out", own_file(loft="Ghent"))
    with pytest.raises(DefinitionRefused, match="OwnFile has the kind 'file', which is that of File; rename it"):
        app.definition()


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("raise ImportError('no loft')", "acme:Pigeon", "cannot be loaded from acme"),
        ("", "acme:Pigeon", "cannot be loaded from acme"),
        ("Pigeon = 'bird'", "acme:Pigeon", "is not the definition of an adapter"),
        (PIGEON.replace('"pigeon"', '"dove"'), "acme:Pigeon", "has another kind in its definition: 'dove'"),
    ],
    ids=["fails", "is empty", "no definition", "other kind"],
)
def test_an_unusable_entry_point_is_reported_with_its_package(
    installed: Path, source: str, target: str, said: str
) -> None:
    install_package(installed, "acme", source, {"pigeon": target})
    with pytest.raises(DefinitionError) as refused:
        kinds.find_adapter_type("pigeon")
    assert said in refused.value.what
    assert "acme" in refused.value.what


def test_two_packages_with_the_same_kind_are_reported(installed: Path) -> None:
    for name in ("acme", "zenith"):
        install_package(installed, name, PIGEON, {"pigeon": f"{name}:Pigeon"})
    with pytest.raises(DefinitionError, match=r"acme \(acme:Pigeon\), zenith \(zenith:Pigeon\)"):
        kinds.find_adapter_type("pigeon")
