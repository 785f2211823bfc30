"""What adapters are declared with, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from postroom import Application, adapters, secret
from postroom.adapters import kinds
from postroom.errors import DefinitionError, DefinitionRefused

HOME = Path("/srv/home")


def test_relative_paths_are_taken_from_home_and_absolute_ones_are_not() -> None:
    assert adapters.File("out/europe").folder(HOME) == HOME / "out/europe"
    assert adapters.File(Path("/data/out")).folder(HOME) == Path("/data/out")
    assert adapters.File("in").archive_folder(HOME) is None
    assert adapters.File("in", archive=Path("done")).archive_folder(HOME) == HOME / "done"


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("out/%MessageID%.xml", "/srv/home/out", "%MessageID%.xml"),
        ("%MessageID%.xml", "/srv/home", "%MessageID%.xml"),
        ("/data/orders-%datetime%.xml", "/data", "orders-%datetime%.xml"),
        ("/%MessageID%", "/", "%MessageID%"),
        (Path("out/%SourceFileName%"), "/srv/home/out", "%SourceFileName%"),
        ("out/100%", "/srv/home/out/100%", "%MessageID%%SourceExtension%"),
    ],
)
def test_the_last_part_of_a_path_with_a_macro_is_the_file_name(path: str | Path, folder: str, name: str) -> None:
    definition = adapters.File(path)
    assert definition.problems() == []
    assert (definition.folder(HOME), definition.name) == (Path(folder), name)
    stored = definition.model_dump(mode="json")
    assert kinds.load_send_adapter(stored) == definition


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        (adapters.File("in/%MessageID%.xml"), "name '%MessageID%.xml' is for send ports"),
        (adapters.File("in/*.xml"), "write the folder 'in', and pattern='*.xml'"),
        (adapters.SparkReader("text", "in/*.txt"), "write the folder 'in', and pattern='*.txt'"),
    ],
)
def test_a_receive_location_has_a_folder_and_a_pattern(adapter: adapters.ReceiveDefinition, said: str) -> None:
    assert adapter.problems() == []
    [problem] = adapter.receive_problems()
    assert said in problem
    app = Application("orders")
    app.receive_port("Orders").location("in", adapter)
    with pytest.raises(DefinitionRefused, match=re.escape(said)):
        app.definition()


def test_a_reader_of_rows_has_no_macros_in_its_folder() -> None:
    [problem] = adapters.SparkReader("text", "in/%MessageID%").problems()
    assert "path 'in/%MessageID%' contains %MessageID%" in problem


def test_an_address_is_a_uri() -> None:
    assert adapters.File("out dir").address(HOME) == "file:///srv/home/out%20dir"
    assert adapters.Http("https://example.com/orders").address(HOME) == "https://example.com/orders"


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("*", ["a", "a.json"], [".a", ".postroom"]),
        ("*.json", ["a.json"], ["a.JSON", "a.json.tmp", ".a.json", "a.jsonl"]),
        ("order-[0-9]?.csv", ["order-1x.csv"], ["order-x1.csv"]),
        ("[[]x]", ["[x]"], ["x"]),
        ("a\nb", ["a\nb"], ["a"]),
    ],
)
def test_a_pattern_selects_the_received_files(pattern: str, taken: list[str], left: list[str]) -> None:
    definition = adapters.File("in", pattern=pattern)
    assert definition.problems() == []
    assert [name for name in (*taken, *left) if definition.matches(name)] == taken


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": ""}, "pattern is empty"),
        ({"pattern": "sub/*.json"}, "separator"),
        ({"pattern": "*.[ch"}, "'['"),
        ({"pattern": "[]"}, "'['"),
        ({"pattern": ".x*"}, "hidden"),
        ({"settle": -1}, "settle"),
        ({"settle": 1e9}, "settle"),
        ({"archive": ""}, "archive is empty"),
        ({"archive": "./in/"}, "watched folder"),
        ({"private_folder": " "}, "private_folder is empty"),
        ({"private_folder": "in/private"}, "inside the watched folder"),
        ({"path": " "}, "path is empty"),
        ({"path": "a\0b"}, "NUL"),
        ({"name": "%Nonsense%"}, "%Nonsense%"),
        ({"path": "out/%Nonsense%.xml"}, "%Nonsense%"),
        ({"path": "out/%SourceParty%/%MessageID%.xml"}, "path 'out/%SourceParty%' contains %SourceParty% in the name"),
        ({"path": "out/%MessageID%", "name": "a.xml"}, "path 'out/%MessageID%' contains %MessageID% in the name"),
        ({"path": "C:\\out\\%MessageID%.xml"}, "The separator of folders is '/'"),
    ],
)
def test_an_invalid_file_definition_has_problems(arguments: dict[str, Any], said: str) -> None:
    problems = adapters.File(**{"path": "in", **arguments}).problems()
    assert len(problems) == 1
    assert said in problems[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"url": "example.com/orders"}, "not a URL"),
        ({"url": "ftp://example.com"}, "not a URL"),
        ({"url": "http://"}, "not a URL"),
        ({"url": "http://example.com:port/"}, "cannot be parsed"),
        ({"url": "http://[::1/"}, "cannot be parsed"),
        ({"url": "http://example.com/a b"}, "space"),
        ({"url": "http://example.com/\r\nX: y"}, "control"),
        ({"url": "http://me:secret@example.com/"}, "password"),
        ({"url": "http://example.com/#top"}, "fragment"),
        ({"url": "http://exämple.com/"}, "xn--"),
        ({"headers": {"X Y": "z"}}, "'X Y'"),
        ({"headers": {"X": "a\r\nY: b"}}, "line break"),
        ({"headers": {"content-LENGTH": "5"}}, "adapter itself"),
        ({"timeout": 0}, "timeout"),
        ({"connections": 0}, "connections"),
        ({"ca_file": "ca.pem", "url": "http://example.com/"}, "ca_file"),
        ({"proxy": "nonsense"}, "proxy"),
        ({"proxy": "http://me:sesame@proxy"}, "proxy=postroom.secret"),
        ({"headers": {"authorization": "Bearer x"}}, "'authorization' is a secret"),
        ({"headers": {"X-API-Key": "x"}}, "'X-API-Key' is a secret"),
        ({"headers": {"X": secret(env="not a name")}}, "header 'X': env of a secret"),
        ({"proxy": secret(file="proxy.txt")}, "write the absolute path"),
        ({"proxy": secret()}, "one of env and file"),
    ],
)
def test_an_invalid_http_definition_has_problems(arguments: dict[str, Any], said: str) -> None:
    problems = adapters.Http(**{"url": "https://example.com/", **arguments}).problems()
    assert len(problems) == 1
    assert said in problems[0]


def test_a_password_is_not_repeated_in_a_problem() -> None:
    for url in ("http://me:tiger@example.com/", "http://me:tiger@exa mple.com/", "http://me:tiger@example.com:x/"):
        assert "tiger" not in str(adapters.Http(url).problems())


def test_all_problems_are_listed() -> None:
    assert len(adapters.File("", pattern="[", settle=-1, name="%X%").problems()) == 4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: adapters.File(5), "path"),  # type: ignore[arg-type]
        (lambda: adapters.File("in", pattern=None), "pattern"),  # type: ignore[arg-type]
        (lambda: adapters.File("in", mode="append"), "mode"),  # type: ignore[arg-type]
        (lambda: adapters.File("in", settle=float("nan")), "settle"),
        (lambda: adapters.Http("https://example.com", headers={"X": 5}), "headers.X"),  # type: ignore[dict-item]
    ],
)
def test_an_argument_of_the_wrong_type_is_rejected_at_once(make: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        make()


def test_a_definition_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        adapters.File("in").path = "elsewhere"


def test_a_stored_definition_has_its_kind() -> None:
    stored = [adapters.File("in"), adapters.Http("https://example.com"), adapters.Null()]
    assert [definition.model_dump(mode="json")["kind"] for definition in stored] == ["file", "http", "null"]
    for definition in stored:
        assert kinds.load_send_adapter(definition.model_dump(mode="json")) == definition


@pytest.mark.parametrize("stored", [{"kind": "pigeon"}, {"kind": "file"}, {"kind": "null", "speed": 5}, {}])
def test_an_invalid_stored_adapter_is_rejected(stored: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        kinds.load_send_adapter(stored)


def test_an_http_receive_adapter_has_an_address() -> None:
    assert adapters.HttpReceive("/orders", port=8080).address(HOME) == "http://127.0.0.1:8080/orders"
    secure = adapters.HttpReceive("/", port=443, listen="::1", certificate="c.pem", key=Path("/etc/k.pem"))
    assert secure.problems() == []
    assert secure.address(HOME) == "https://[::1]:443/"
    files = secure.tls_files(HOME)
    assert files is not None
    assert (files.certificate, files.key, files.client_ca) == (HOME / "c.pem", Path("/etc/k.pem"), None)


def test_an_http_receive_adapter_with_client_certificates() -> None:
    tls: dict[str, Any] = {"certificate": "c.pem", "key": "k.pem"}
    thumbprint = ":".join(["AB"] * 32)
    adapter = adapters.HttpReceive("/", port=443, **tls, client_ca=Path("ca.pem"), certificates={thumbprint: "Contoso"})
    assert adapter.problems() == []
    assert adapter.certificates == {"ab" * 32: "Contoso"}
    assert adapter.needs_authentication
    files = adapter.tls_files(HOME)
    assert files is not None
    assert files.client_ca == HOME / "ca.pem"
    assert files.requires_client_certificate
    for wrong, problem in (
        ({"client_ca": "ca.pem"}, "client_ca needs TLS: set certificate and key too."),
        (
            {**tls, "certificates": {thumbprint: "A"}},
            "certificates needs client_ca, the authorities that have issued them.",
        ),
        (
            {**tls, "client_ca": "ca.pem", "certificates": {"ab12": "A"}},
            "certificates: 'ab12' is not a SHA-256 thumbprint, which has 64 hexadecimal digits.",
        ),
        ({**tls, "client_ca": "ca.pem", "certificates": {thumbprint: " "}}, "certificates: a party has no name."),
        ({"party_requests": 0}, "party_requests is 0, but must be at least 1."),
    ):
        assert adapters.HttpReceive("/", port=443, **wrong).problems() == [problem]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "orders"}, "path"),
        ({"path": "/orders?x=1"}, "path"),
        ({"path": "/a b"}, "path"),
        ({"port": 0}, "port"),
        ({"port": 70000}, "port"),
        ({"listen": " "}, "listen"),
        ({"listen": "http://x"}, "listen"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"timeout": 0}, "timeout"),
        ({"certificate": "c.pem"}, "belong together"),
        ({"key": "k.pem"}, "belong together"),
    ],
)
def test_an_invalid_http_receive_definition_has_problems(arguments: dict[str, Any], said: str) -> None:
    problems = adapters.HttpReceive(**{"path": "/orders", "port": 8080, **arguments}).problems()
    assert len(problems) == 1
    assert said in problems[0]


def test_every_adapter_has_the_name_of_its_transport() -> None:
    assert [kinds.get_send_type(kind).transport_type for kind in ("file", "http")] == ["FILE", "HTTP"]
    assert kinds.get_receive_type("http_receive").transport_type == "HTTP"
    assert all(adapter.transport_type for adapter in kinds.ADAPTERS.values())


@pytest.mark.parametrize("kind", ["carrier pigeon", "http_receive"])
def test_a_kind_that_cannot_send_has_what_all_send_adapters_share(kind: str) -> None:
    assert kinds.get_send_type(kind) is adapters.SendDefinition


@pytest.mark.parametrize("kind", ["carrier pigeon", "http"])
def test_a_kind_that_cannot_receive_has_what_all_receive_adapters_share(kind: str) -> None:
    assert kinds.get_receive_type(kind) is adapters.ReceiveDefinition


def test_every_kind_of_adapter_is_an_identifier() -> None:
    assert [kind for kind in kinds.ADAPTERS if not kind.isidentifier()] == []
