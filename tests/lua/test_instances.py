"""Announcements of instances: what they write, how long it stays, and what remains of the dead."""

from dataclasses import dataclass
from typing import Any

import pytest

from lingua_scheduler.services.runtime.contract.announcements import ALIVE_MS, KEEP_MS
from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import START_MS, Scripts

SETTINGS = b"the settings"


@dataclass(frozen=True)
class Release:
    """Which formats of data it writes and reads."""

    writes: int = 1
    reads_from: int = 1
    reads_to: int = 1
    version: str = "0.2.0"


OLD = Release()
BOTH = Release(reads_to=2, version="0.3.0")
NEW = Release(writes=2, reads_to=2, version="0.4.0")
LATER = Release(writes=2, reads_from=2, reads_to=2, version="0.5.0")


class Announced:
    """The instances of a scheduler."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def announce(
        self, name: str = "d1", message: bytes = b"m", settings: bytes = b"", ttl_ms: int = ALIVE_MS
    ) -> int:
        """Announces an instance; returns whether its settings are there."""
        reply = self.reply(Release(), name, message=message, settings=settings, ttl_ms=ttl_ms)
        return int(reply)

    def reply(
        self,
        release: Release,
        name: str,
        *,
        message: bytes = b"m",
        settings: bytes = SETTINGS,
        ttl_ms: int = ALIVE_MS,
    ) -> Any:
        """What an instance of a release is told."""
        call = script_calls.AnnounceInstance(
            writes=release.writes,
            reads_from=release.reads_from,
            reads_to=release.reads_to,
            version=release.version,
        ).call(
            instance=name,
            address=f"{name}:7720",
            ttl_ms=ttl_ms,
            keep_ms=KEEP_MS,
            message=message,
            settings=settings,
        )
        return self.scripts.call(*call)

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

    def format(self) -> list[bytes | None]:
        """The recorded format, and the release that began it."""
        found = self.scripts.client.hmget(self.scripts.key("format"), "format", "version")
        return list(found)

    def readers(self) -> dict[bytes, bytes]:
        return dict(self.scripts.client.hgetall(self.scripts.key("format", "readers")))

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


def test_the_first_instance_records_the_format_of_its_data(announced: Announced) -> None:
    assert announced.reply(OLD, "d1") == 1
    assert announced.format() == [b"1", b"0.2.0"]
    assert announced.reply(BOTH, "d2") == 1
    assert announced.format() == [b"1", b"0.2.0"], "it writes the same"


def test_a_new_format_is_written_when_every_running_instance_can_read_it(
    announced: Announced,
) -> None:
    announced.reply(OLD, "old")
    announced.reply(BOTH, "both")
    assert announced.reply(NEW, "new") == [b"unread", b"old", 1, b"0.2.0"]
    assert announced.format() == [b"1", b"0.2.0"]
    assert announced.address("new") is None
    assert set(announced.listed()) == {"old", "both"}
    announced.leave("old")
    assert announced.reply(NEW, "new") == 1
    assert announced.format() == [b"2", b"0.4.0"]


def test_an_instance_that_died_does_not_hold_up_a_new_format(announced: Announced) -> None:
    announced.reply(OLD, "dead")
    announced.scripts.advance(ALIVE_MS)
    assert announced.reply(NEW, "new") == 1


def test_an_instance_from_before_there_were_formats_reads_the_first(announced: Announced) -> None:
    announced.reply(OLD, "old")
    announced.scripts.client.delete(
        announced.scripts.key("format"), announced.scripts.key("format", "readers")
    )
    assert announced.reply(NEW, "new") == [b"unread", b"old", 1, b""]


def test_no_instance_runs_on_data_that_it_cannot_read(announced: Announced) -> None:
    announced.reply(NEW, "new")
    assert announced.reply(OLD, "old") == [b"unreadable", 2, b"0.4.0"]
    assert announced.address("old") is None
    assert set(announced.listed()) == set(map(bytes.decode, announced.readers())) == {"new"}
    assert announced.reply(BOTH, "both") == 1, "a roll-back by one release"
    assert announced.format() == [b"2", b"0.4.0"]


def test_an_instance_that_skips_a_release_does_not_run_on_data_that_are_too_old(
    announced: Announced,
) -> None:
    announced.reply(OLD, "old")
    announced.leave("old")
    assert announced.reply(LATER, "later") == [b"unreadable", 1, b"0.2.0"]
    assert announced.format() == [b"1", b"0.2.0"]


def test_what_a_dead_instance_could_read_is_forgotten_with_it(announced: Announced) -> None:
    announced.reply(OLD, "dead")
    announced.scripts.advance(KEEP_MS - 1)
    announced.reply(OLD, "alive")
    announced.scripts.advance(2)
    assert announced.forget() == ("0", {"dead"})
    assert set(announced.readers()) == {b"alive"}
    announced.leave("alive")
    assert announced.readers() == {}
