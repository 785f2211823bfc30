"""Where the messages of a dynamic send port go, and where they may not (SND-17, SND-18)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.adapters import File
from postroom.adapters.dynamic.addresses import FileTarget, NullTarget, UrlTarget, get_transport_address, resolve_target
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.kinds import load_send_adapter
from postroom.errors import AddressRefused, DefinitionError
from postroom.message import Context
from postroom.system_properties import BTS


def context(address: str | None, transport_type: str | None = None) -> Context:
    return Context().write(BTS.OutboundTransportLocation, address).write(BTS.OutboundTransportType, transport_type)


def target(
    home: Path, address: str | None, transport_type: str | None = None, **definition: object
) -> FileTarget | UrlTarget | NullTarget:
    return resolve_target(context(address, transport_type), Dynamic(**definition), home)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "out").mkdir(parents=True)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("address", "folder", "name"),
    [
        ("file://{home}/out/a.xml", "out", "a.xml"),
        ("FILE://{home}/out/a.xml", "out", "a.xml"),
        ("file://localhost{home}/out/a.xml", "out", "a.xml"),
        ("file://{home}/out/%MessageID%.xml", "out", "%MessageID%.xml"),
        ("file://{home}/out/%datetime%%20of%20%MessageID%", "out", "%datetime% of %MessageID%"),
        ("file://{home}/out/", "out", "%MessageID%%SourceExtension%"),
        ("file://{home}/not/there/yet/a", "not/there/yet", "a"),
        ("file:out/a.xml", "out", "a.xml"),
        ("file:a.xml", ".", "a.xml"),
        ("file:out/../b/a.xml", "b", "a.xml"),
        ("file://{home}/%6Fut/100%25", "out", "100%"),
    ],
)
def test_a_file_address_names_folder_and_file(home: Path, address: str, folder: str, name: str) -> None:
    found = target(home, address.format(home=home))
    assert found == FileTarget(folder=Path(os.path.realpath(home / folder)), name=name)
    assert File(found.folder, name=found.name).problems() == []


@pytest.mark.parametrize("url", ["http://example.com/a?b=c", "HTTPS://example.com/", "https://example.com:8443/a/../b"])
def test_every_url_is_allowed_by_default(home: Path, url: str) -> None:
    assert target(home, url) == UrlTarget(url=url)


@pytest.mark.parametrize(
    ("address", "transport_type", "kind"),
    [
        ("out/a.xml", "FILE", FileTarget),
        ("out/a.xml", "file", FileTarget),
        ("https://example.com/", "HTTP", UrlTarget),
        ("null:", None, NullTarget),
        ("https://example.com/", "NULL", NullTarget),
        ("file:out/a.xml", "", FileTarget),
    ],
)
def test_the_transport_type_has_precedence_over_the_scheme(
    home: Path, address: str, transport_type: str | None, kind: type
) -> None:
    assert isinstance(target(home, address, transport_type), kind)


@pytest.mark.parametrize(
    ("address", "transport_type", "said"),
    [
        (None, None, "no address"),
        ("", None, "no address"),
        ("  ", "FILE", "no address"),
        ("ftp://example.com/a", None, "There is no adapter for the address 'ftp://example.com/a'"),
        ("out/a.xml", None, "There is no adapter"),
        ("file:out/a.xml", "FTP", "no adapter 'FTP'"),
        ("https://example.com/", "FILE", "not the address of a file"),
        ("file:out/a.xml", "HTTP", "not a URL"),
        ("https://user:tiger@example.com/", None, "user or a password"),
        ("http://", None, "not a URL"),
        ("http://exa mple.com", None, "space"),
        ("file://server/share/a.xml", None, "names the host 'server'"),
        ("file:///etc/cron.d/a", None, "outside the folders"),
        ("file:../a.xml", None, "outside the folders"),
        ("file:out/../../a.xml", None, "outside the folders"),
        ("file:out/%2e%2e/%2e%2e/a.xml", None, "outside the folders"),
        ("../a.xml", "FILE", "outside the folders"),
        ("file:///a.xml", None, "outside the folders"),
        ("file:leads/out/a.xml", None, "outside the folders"),
        ("file:.postroom/postgres/a", None, "hidden folder"),
        ("file:out/.ssh/a", None, "hidden folder"),
        ("file:out/.hidden", None, "begins with a dot"),
        ("file:out/%Nonsense%", None, "macro %Nonsense% does not exist"),
        ("file:%MessageID%/a", None, "folder contains a macro"),
        ("file:out/a%00b", None, "NUL"),
        ("file:out/a%5Cb", None, "which is not allowed in a file name"),
    ],
)
def test_invalid_addresses_are_rejected(home: Path, address: str | None, transport_type: str | None, said: str) -> None:
    (home / "leads").symlink_to(home.parent)
    with pytest.raises(AddressRefused) as caught:
        target(home, address, transport_type)
    assert said in str(caught.value)
    assert "tiger" not in str(caught.value)
    assert caught.value.hint
    assert not caught.value.transient


def test_folders_limit_the_folders_of_files(home: Path) -> None:
    elsewhere = home.parent / "elsewhere"
    assert target(home, f"file://{elsewhere}/a", folders=["out", elsewhere]) == FileTarget(
        folder=Path(os.path.realpath(elsewhere)), name="a"
    )
    with pytest.raises(AddressRefused, match="may not be sent"):
        target(home, f"file://{home}/a", folders=["out"])
    with pytest.raises(AddressRefused, match="may not be sent"):
        target(home, "file:outside/a", folders=["out"])
    with pytest.raises(AddressRefused, match="may not be sent"):
        target(home, "file:out/a", folders=[])


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.com/orders", True),
        ("https://example.com:443/orders/1?x=y", True),
        ("https://EXAMPLE.com/orders/", True),
        ("https://example.com/ordersheet", False),
        ("https://example.com/orders/../admin", False),
        ("https://example.com/orders/%2e%2e/admin", False),
        ("https://example.com/", False),
        ("http://example.com/orders", False),
        ("https://example.com:8443/orders", False),
        ("https://example.com.evil.org/orders", False),
        ("http://hooks.example.org/anything", True),
        ("http://169.254.169.254/latest", False),
    ],
)
def test_urls_limit_the_targets_of_posts(home: Path, url: str, allowed: bool) -> None:
    urls = ["https://example.com/orders/", "http://hooks.example.org"]
    if allowed:
        assert target(home, url, urls=urls) == UrlTarget(url=url)
    else:
        with pytest.raises(AddressRefused, match="may not be sent"):
            target(home, url, urls=urls)


def test_a_listing_shows_an_endpoint_without_its_login() -> None:
    assert get_transport_address(context("https://user:secret@example.com/a")) == (
        "http",
        "https://(hidden)@example.com/a",
    )
    assert get_transport_address(context("ftp://example.com")) == ("dynamic", "ftp://example.com")
    assert get_transport_address(context(None)) == ("dynamic", "")
    assert get_transport_address(context("a", "FILE")) == ("file", "a")


def test_a_definition_lists_its_problems_and_is_loaded_again() -> None:
    definition = Dynamic(folders=["out", Path("in")], urls=["https://example.com/"], timeout=5)
    assert definition.problems() == []
    assert definition.address(Path("/srv")) == "dynamic:"
    assert load_send_adapter(definition.model_dump(mode="json")) == definition
    wrong = Dynamic(folders=["", "a\0b"], urls=["ftp://x", "https://x/?a=b"], timeout=0)
    assert len(wrong.problems()) == 5
    with pytest.raises(DefinitionError, match="folders"):
        Dynamic(folders="out")
    with pytest.raises(DefinitionError, match="urls"):
        Dynamic(urls="https://example.com")
