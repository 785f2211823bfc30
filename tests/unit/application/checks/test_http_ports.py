"""HTTP receive locations that cannot be served together are refused before anything is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroom import Application, adapters
from postroom.application.checks.shared_endpoints import shared_endpoint_problems

HOME = Path("/home")


def declared(name: str, *locations: adapters.HttpReceive, host: str = "Main") -> Application:
    app = Application(name)
    if host != "Main":
        app.host(host)
    port = app.receive_port(f"{name}In")
    for number, adapter in enumerate(locations):
        port.location(f"{name}{number}", adapter, host=host)
    return app


def problems(new: Application, *deployed: Application) -> list[str]:
    found = shared_endpoint_problems(new.definition(), [one.definition() for one in deployed], HOME)
    return [str(problem).partition(": ")[2] for problem in found]


def at(path: str, port: int = 8080, **given: Any) -> adapters.HttpReceive:
    return adapters.HttpReceive(path, port=port, **given)


def test_locations_share_a_port_by_their_paths() -> None:
    assert problems(declared("a", at("/1"), at("/2"), at("/1", port=8081)), declared("b", at("/3"))) == []


def test_a_path_is_there_once() -> None:
    said = "location 'a1': the path /1 of port 8080 is taken (location 'a0')."
    assert problems(declared("a", at("/1"), at("/1"))) == [said]
    said = "location 'a0': the path /1 of port 8080 is taken (location 'b0')."
    assert problems(declared("a", at("/1")), declared("b", at("/1"))) == [said]


def test_the_application_that_is_replaced_is_left_out() -> None:
    assert problems(declared("a", at("/1")), declared("a", at("/1"))) == []


def test_a_port_has_one_host_and_one_certificate() -> None:
    said = "location 'a0': port 8080 belongs to the host 'Web' (location 'b0')."
    assert problems(declared("a", at("/1")), declared("b", at("/2"), host="Web")) == [said]
    said = "location 'a1': port 8080 has another certificate (location 'a0')."
    assert problems(declared("a", at("/1"), at("/2", certificate="c.pem", key="k.pem"))) == [said]
