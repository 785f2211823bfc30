"""HTTP receive locations that cannot be served together are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroom import Application, adapters
from postroom.application.checks.shared_endpoints import shared_endpoint_problems

HOME = Path("/home")


def application(name: str, *locations: adapters.HttpReceive, host: str = "Main") -> Application:
    app = Application(name)
    if host != "Main":
        app.host(host)
    port = app.receive_port(f"{name}In")
    for number, adapter in enumerate(locations):
        port.location(f"{name}{number}", adapter, host=host)
    return app


def problems(new: Application, *deployed: Application) -> list[str]:
    found = shared_endpoint_problems(new.definition(), [application.definition() for application in deployed], HOME)
    return [str(problem).partition(": ")[2] for problem in found]


def http_location(path: str, port: int = 8080, **options: Any) -> adapters.HttpReceive:
    return adapters.HttpReceive(path, port=port, **options)


def test_locations_with_different_paths_can_share_a_port() -> None:
    assert (
        problems(
            application("a", http_location("/1"), http_location("/2"), http_location("/1", port=8081)),
            application("b", http_location("/3")),
        )
        == []
    )


def test_a_path_of_a_port_has_one_location() -> None:
    problem = "location 'a1': the path /1 of port 8080 is taken (location 'a0')."
    assert problems(application("a", http_location("/1"), http_location("/1"))) == [problem]
    problem = "location 'a0': the path /1 of port 8080 is taken (location 'b0')."
    assert problems(application("a", http_location("/1")), application("b", http_location("/1"))) == [problem]


def test_the_replaced_application_is_not_checked() -> None:
    assert problems(application("a", http_location("/1")), application("a", http_location("/1"))) == []


def test_a_port_has_one_host_and_one_certificate() -> None:
    problem = "location 'a0': port 8080 belongs to the host 'Web' (location 'b0')."
    assert problems(application("a", http_location("/1")), application("b", http_location("/2"), host="Web")) == [
        problem
    ]
    problem = "location 'a1': port 8080 has another certificate (location 'a0')."
    tls: dict[str, Any] = {"certificate": "c.pem", "key": "k.pem"}
    assert problems(application("a", http_location("/1"), http_location("/2", **tls))) == [problem]
    problem = "location 'a1': port 8080 accepts other client certificates (location 'a0')."
    other = http_location("/2", **tls, client_ca="ca.pem")
    assert problems(application("a", http_location("/1", **tls), other)) == [problem]
