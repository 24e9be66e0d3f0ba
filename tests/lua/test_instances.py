"""Announcements of instances: what they write, how long it stays, and what remains of the dead."""

import pytest

from lingua_scheduler.services.runtime.contract.announcements import ALIVE_MS, KEEP_MS
from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import START_MS, Scripts

SETTINGS = b"the settings"


class Announced:
    """The instances of a scheduler."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def announce(
        self, name: str = "d1", message: bytes = b"m", settings: bytes = b"", ttl_ms: int = ALIVE_MS
    ) -> int:
        """Announces an instance; returns whether its settings are there."""
        call = script_calls.announce_instance(
            instance=name,
            address=f"{name}:7720",
            ttl_ms=ttl_ms,
            keep_ms=KEEP_MS,
            message=message,
            settings=settings,
        )
        return int(self.scripts.call(*call))

    def leave(self, name: str = "d1") -> None:
        """The instance stops."""
        self.announce(name, message=b"", ttl_ms=0)

    def forget(self, cursor: str = "0", per_step: int = 1000) -> tuple[str, set[str]]:
        """Takes old instances off the list: the next cursor, and who was deleted."""
        call = script_calls.ForgetInstances(instances_per_step=per_step, keep_ms=KEEP_MS)
        following, gone = self.scripts.call(*call.call(cursor=cursor))
        return following.decode(), {each.decode() for each in gone}

    def address(self, name: str = "d1") -> bytes | None:
        return self.scripts.client.get(self.scripts.key("instance", name))

    def settings(self, name: str = "d1") -> bytes | None:
        return self.scripts.client.get(self.scripts.key("instance", name, "settings"))

    def listed(self) -> dict[str, bytes]:
        found = self.scripts.client.hgetall(self.scripts.key("instances"))
        return {name.decode(): value for name, value in found.items()}


@pytest.fixture
def announced(scripts: Scripts) -> Announced:
    return Announced(scripts)


def test_an_announcement_has_the_address_the_time_the_message_and_the_settings(
    announced: Announced,
) -> None:
    assert announced.announce(message=b"\x00 m\xff", settings=SETTINGS) == 1
    assert announced.address() == b"d1:7720"
    assert announced.listed() == {"d1": f"{START_MS} ".encode() + b"\x00 m\xff"}
    assert announced.settings() == SETTINGS


def test_the_settings_are_kept_by_announcements_without_them(announced: Announced) -> None:
    announced.announce(settings=SETTINGS)
    for _ in range(3):
        announced.scripts.advance(KEEP_MS - 1)
        assert announced.announce() == 1
    assert announced.settings() == SETTINGS
    assert announced.listed() == {"d1": f"{START_MS + 3 * (KEEP_MS - 1)} m".encode()}


def test_lost_settings_are_asked_for(announced: Announced) -> None:
    announced.announce(settings=SETTINGS)
    scripts = announced.scripts
    for key in (("instances",), ("instance", "d1"), ("instance", "d1", "settings")):
        assert scripts.client.delete(scripts.key(*key)) == 1
    assert announced.announce() == 0, "Redis has lost them"
    assert announced.address() == b"d1:7720"
    assert set(announced.listed()) == {"d1"}
    assert announced.announce(settings=SETTINGS) == 1
    assert announced.settings() == SETTINGS
    assert announced.announce() == 1


def test_nothing_is_left_of_an_instance_that_leaves(announced: Announced) -> None:
    announced.announce("d1", settings=SETTINGS)
    announced.announce("d2", settings=SETTINGS)
    announced.leave("d1")
    assert (announced.address("d1"), announced.settings("d1")) == (None, None)
    assert announced.address("d2") is not None
    assert set(announced.listed()) == {"d2"}
    announced.leave("d2")
    keys = announced.scripts.client.scan_iter(f"{announced.scripts.prefix}:inst*")
    assert list(keys) == []


def test_the_address_of_a_dead_instance_expires_before_it_leaves_the_list(
    announced: Announced,
) -> None:
    announced.announce("dead", settings=SETTINGS)
    announced.scripts.advance(ALIVE_MS)
    announced.announce("alive", settings=SETTINGS)
    assert announced.address("dead") is None
    assert announced.settings("dead") == SETTINGS
    assert announced.forget() == ("0", set())
    announced.scripts.advance(KEEP_MS - ALIVE_MS)
    announced.announce("alive")
    assert announced.forget() == ("0", set()), "not longer than it is kept"
    announced.scripts.advance(1)
    assert announced.forget() == ("0", {"dead"})
    assert announced.settings("dead") is None
    assert set(announced.listed()) == {"alive"}


def test_the_whole_list_expires_if_nobody_announces_anything(announced: Announced) -> None:
    announced.announce("d1")
    announced.announce("d2")
    announced.scripts.advance(KEEP_MS)
    assert announced.listed() == {}
    assert announced.forget() == ("0", set())


def test_many_dead_instances_are_forgotten_in_steps(announced: Announced) -> None:
    # Long enough that Redis does not return a small hash as a whole.
    names = {f"dead-{at}" for at in range(300)}
    for name in names:
        announced.announce(name, message=b"m" * 100)
    announced.scripts.advance(KEEP_MS - 1)
    announced.announce("alive", message=b"m" * 100)
    announced.scripts.advance(2)
    cursor, steps, forgotten = "0", 0, set[str]()
    while True:
        cursor, gone = announced.forget(cursor, per_step=20)
        forgotten |= gone
        steps += 1
        if cursor == "0":
            break
    assert forgotten == names
    assert steps > 5
    assert set(announced.listed()) == {"alive"}


def test_an_entry_that_is_no_announcement_is_deleted(announced: Announced) -> None:
    announced.announce("d1")
    announced.scripts.client.hset(announced.scripts.key("instances"), "strange", b"\xff")
    assert announced.forget() == ("0", {"strange"})
    assert set(announced.listed()) == {"d1"}
