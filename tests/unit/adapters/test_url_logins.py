"""Logins in URLs are found, hidden and removed."""

from __future__ import annotations

import pytest

from postroom.adapters.url_logins import has_login, redact_login, remove_login


@pytest.mark.parametrize(
    ("url", "redacted", "removed"),
    [
        ("https://scott:tiger@example.org/in", "https://(hidden)@example.org/in", "https://example.org/in"),
        ("//scott@example.org", "//(hidden)@example.org", "//example.org"),
        ("https://a@b@example.org?x=1", "https://(hidden)@example.org?x=1", "https://example.org?x=1"),
    ],
)
def test_a_login_before_the_host_is_not_shown(url: str, redacted: str, removed: str) -> None:
    assert has_login(url)
    assert (redact_login(url), remove_login(url)) == (redacted, removed)


@pytest.mark.parametrize("url", ["https://example.org/a@b", "https://example.org?to=a@b", "a@b", "file:out/a@b"])
def test_an_at_sign_after_the_host_is_not_a_login(url: str) -> None:
    assert not has_login(url)
    assert redact_login(url) == remove_login(url) == url
