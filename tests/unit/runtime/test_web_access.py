"""Which hosts and origins an HTTP server accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime.web.access import Hosts, Origins

LOCAL = "127.0.0.1:7740"


@pytest.mark.parametrize(
    "host",
    [LOCAL, "localhost", "localhost:7740", "LOCALHOST", "a.localhost:1", "[::1]:7740", "10.0.0.7"],
)
def test_addresses_and_localhost_are_accepted(host: str) -> None:
    assert Hosts("").accepts(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example:7740",
        "",
        " localhost",
        "localhost:7740x",
        "localhost:1:2",
        "localhost/path",
        "evil.example,localhost",
        "[::1",
        "localhost\x00",
    ],
)
def test_other_names_are_refused_as_a_page_may_point_its_own_name_here(host: str) -> None:
    assert not Hosts("").accepts(host)
    assert not Hosts("talk.example").accepts(host)


def test_further_names_can_be_allowed() -> None:
    hosts = Hosts("talk.example, other.example")
    assert hosts.accepts("talk.example")
    assert hosts.accepts("Talk.Example:443")
    assert hosts.accepts("talk.example.")
    assert hosts.accepts("other.example")
    assert not hosts.accepts("a.talk.example")
    assert Hosts("*").accepts("any.example:1")
    assert not Hosts("*").accepts("not a host")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, LOCAL),
        ("http://127.0.0.1:7740", LOCAL),
        ("https://talk.example", "talk.example"),
        ("https://talk.example", "talk.example:443"),
        ("http://talk.example:80", "talk.example"),
        ("https://TALK.example", "Talk.Example"),
        ("http://[::1]:7740", "[::1]:7740"),
    ],
)
def test_pages_of_this_server_and_programs_are_accepted(origin: str | None, host: str) -> None:
    assert Origins("").accepts(origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost:7740",
        "http://127.0.0.1",
        "http://127.0.0.1:7740.evil.example",
        "http://127.0.0.1:7740@evil.example",
        "null",
        "",
        "file://",
        "ftp://127.0.0.1:7740",
        "chrome-extension://abc",
        "127.0.0.1:7740",
    ],
)
def test_pages_of_others_are_refused(origin: str) -> None:
    assert not Origins("").accepts(origin, LOCAL)
    assert not Origins("https://talk.example").accepts(origin, LOCAL)


@given(st.text(), st.text() | st.none(), st.sampled_from(["", "*", "a.example"]))
def test_any_header_is_accepted_or_refused(host: str, origin: str | None, allowed: str) -> None:
    is_named = Hosts(allowed).accepts(host)
    is_page = Origins(allowed).accepts(origin, host)
    assert is_named in (True, False)
    assert is_page or origin is not None


def test_further_origins_can_be_allowed() -> None:
    origins = Origins("https://talk.example,http://localhost:5173")
    assert origins.accepts("https://talk.example", LOCAL)
    assert origins.accepts("HTTPS://talk.example", LOCAL)
    assert origins.accepts("http://localhost:5173", LOCAL)
    assert not origins.accepts("http://talk.example", LOCAL)
    assert not origins.accepts("https://talk.example:8443", LOCAL)
    assert Origins("*").accepts("null", LOCAL)
