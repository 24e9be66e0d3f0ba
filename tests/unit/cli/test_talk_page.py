"""What is said about the address of the talk page."""

import ipaddress

import pytest
from rich.cells import cell_len

from lingua_scheduler.cli.up import talk_page
from lingua_scheduler.cli.up.talk_page import TalkPage


def words(**fields: object) -> list[str]:
    known = {"url": "http://127.0.0.1:7740/", "lan_url": "", "token_s": 0, "needs_token": False}
    return TalkPage(**{**known, **fields}).words  # type: ignore[arg-type]


def test_the_address_is_the_first_line_and_often_the_only_one() -> None:
    assert words() == ["Talk   http://127.0.0.1:7740/"]


def test_a_token_is_told_with_its_lifetime_and_how_to_get_another() -> None:
    first, *others = words(url="https://127.0.0.1:7740/#token=T", token_s=12 * 3600)
    assert first == "Talk   https://127.0.0.1:7740/#token=T"
    assert "valid for 12 h" in others[0]
    assert others[1].strip() == "lingua token client --tenant local"


def test_if_it_needs_a_token_but_has_none_that_is_told() -> None:
    assert "asks for a token" in words(needs_token=True)[1]


def test_other_devices_get_their_address_and_a_warning_if_there_is_no_tls() -> None:
    assert words(lan_url="https://192.168.1.5:7740/")[1:] == [
        "       on other devices https://192.168.1.5:7740/"
    ]
    assert "refuse the microphone" in words(lan_url="http://192.168.1.5:7740/")[2]


def test_all_lines_but_those_with_a_token_fit_80_columns() -> None:
    for fields in ({"lan_url": "http://255.255.255.255:65535/"}, {"needs_token": True}):
        assert all(cell_len(line) <= 80 for line in words(**fields))


@pytest.mark.parametrize("listen", ["127.0.0.1:7740", "[::1]:7740", "localhost:7740"])
def test_an_address_that_only_this_machine_reaches_has_none_for_others(listen: str) -> None:
    assert talk_page._lan_host(listen) == ""


@pytest.mark.parametrize("listen", ["0.0.0.0:7740", "[::]:7740"])
def test_who_listens_everywhere_has_an_address_of_its_network_if_there_is_one(listen: str) -> None:
    found = talk_page._lan_host(listen)
    # A machine without a network has none.
    assert not found or not ipaddress.ip_address(found).is_loopback
