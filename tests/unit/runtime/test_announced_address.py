"""Where other dispatchers are told to find one."""

import socket

import pytest

from lingua_scheduler.services.runtime.instances import callable_address


async def test_an_address_of_one_interface_is_announced_as_it_is() -> None:
    assert await callable_address("127.0.0.1:7720") == "127.0.0.1:7720"
    assert await callable_address("[::1]:7720") == "[::1]:7720"


@pytest.mark.parametrize("bound", ["0.0.0.0:7720", "[::]:7720"])
async def test_who_listens_everywhere_is_called_by_the_name_of_the_machine(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert await callable_address(bound) == "localhost:7720"


async def test_a_name_that_does_not_resolve_is_not_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "not-a-host.invalid")
    assert await callable_address("0.0.0.0:7720") == "0.0.0.0:7720"
