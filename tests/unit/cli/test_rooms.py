"""`lingua rooms`: requests to the gateway, and the output for its answers."""

import json
import time
from typing import Any

import pytest

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import rooms_pb2
from tests.unit.cli.test_clients import Answer, run

HOST = "room.r1.h.0.n.mac"
T0 = 1_700_000_000_000


def room(room_id: str = "r1", **fields: Any) -> rooms_pb2.Room:
    values: dict[str, Any] = {
        "tenant": "acme",
        "options": rooms_pb2.RoomOptions(
            name="All hands",
            speak=rooms_pb2.SPEAK_POLICY_INVITED,
            max_members=2000,
            max_speakers=8,
            max_languages=16,
        ),
        "created_ms": T0,
        "next_index": 12,
        "listeners": 5,
        "speakers": [
            rooms_pb2.RoomSpeakerInfo(session_id="s1", name="Ana", language="en", joined_ms=T0)
        ],
        "languages": [
            rooms_pb2.RoomLanguage(
                language="es", listeners=3, speech_listeners=1, waiting=2, oldest_waiting_ms=1500
            ),
            rooms_pb2.RoomLanguage(language="fr", listeners=2),
        ],
        "gateway_instances": ["g1", "g2"],
    }
    return rooms_pb2.Room(room_id=room_id, **{**values, **fields})


def created(**fields: Any) -> Answer:
    return Answer("CreateRoom", rooms_pb2.CreateRoomResponse(room=room(**fields), host_token=HOST))


def token(text: str) -> Answer:
    made = rooms_pb2.CreateJoinTokenResponse(join_token=text, expires_ms=T0)
    return Answer("CreateJoinToken", made)


def listed(*rooms: rooms_pb2.Room, token: str = "") -> Answer:
    response = rooms_pb2.ListRoomsResponse(rooms=rooms, next_page_token=token)
    return Answer("ListRooms", response)


def shown(found: rooms_pb2.Room) -> Answer:
    return Answer("GetRoom", rooms_pb2.GetRoomResponse(room=found))


def members(*found: rooms_pb2.Member, token: str = "") -> Answer:
    response = rooms_pb2.ListMembersResponse(members=found, next_page_token=token)
    return Answer("ListMembers", response)


SPEAKER = rooms_pb2.Member(name="Ana", role=rooms_pb2.ROOM_ROLE_SPEAKER, language="en")
LISTENER = rooms_pb2.Member(
    name="Ben\x1b[31m",
    role=rooms_pb2.ROOM_ROLE_LISTENER,
    language="es",
    listening=rooms_pb2.Listening(language="es", captions=True, speech=True),
    gateway_instance="g1",
)


# ---- create ----


def test_create_prints_the_tokens_and_commands_that_work_with_them() -> None:
    result, requests = run(
        ["rooms", "create", "--name", "All hands", "--language", "en", "--language", "fr"],
        created(),
        token("listens"),
        token("speaks"),
    )
    assert requests[0] == rooms_pb2.CreateRoomRequest(
        options=rooms_pb2.RoomOptions(
            name="All hands", languages=["en", "fr"], speak=rooms_pb2.SPEAK_POLICY_INVITED
        )
    )
    assert [(each.role, each.host_token, each.room_id) for each in requests[1:]] == [
        (rooms_pb2.ROOM_ROLE_LISTENER, HOST, "r1"),
        (rooms_pb2.ROOM_ROLE_SPEAKER, HOST, "r1"),
    ]
    lines = result.stdout.splitlines()
    assert lines[0] == "Created room r1 (All hands)"
    assert f"  {HOST}" in lines
    listens = lines.index("  export LINGUA_ROOM_TOKEN=listens")
    assert lines[listens + 1].startswith("  lingua listen --room r1 --language fr")
    speaks = lines.index("  export LINGUA_ROOM_TOKEN=speaks")
    assert lines[speaks + 1].startswith("  lingua speak FILE.wav --room r1 --from en")
    assert all(len(line) <= 100 for line in lines)


def test_create_passes_limits_and_policy_on_and_answers_as_json() -> None:
    result, requests = run(
        "rooms create --speak anyone --max-members 9 --max-speakers 2 --max-languages 3"
        " --tenant acme --json",
        created(),
        token("listens"),
        token("speaks"),
    )
    assert requests[0] == rooms_pb2.CreateRoomRequest(
        options=rooms_pb2.RoomOptions(
            speak=rooms_pb2.SPEAK_POLICY_ANYONE, max_members=9, max_speakers=2, max_languages=3
        ),
        tenant="acme",
    )
    told = json.loads(result.stdout)
    assert told["room"]["room_id"] == "r1"
    assert (told["host_token"], told["listener_token"]) == (HOST, "listens")
    assert (told["speaker_token"], told["expires_ms"]) == ("speaks", T0)


def test_create_names_a_language_that_is_none() -> None:
    result, _ = run(["rooms", "create", "--language", "no language"])
    assert result.exit_code == 2
    assert "'no language' must be a language code" in result.stderr


def test_a_quota_that_is_used_up_is_said() -> None:
    error = errors.QuotaExceededError("the tenant has reached its limit of 3 rooms")
    result, _ = run("rooms create", Answer("CreateRoom", error=error))
    assert result.exit_code == 1
    assert "limit of 3 rooms" in result.stderr


# ---- token ----


def test_a_token_is_all_that_is_printed_and_the_host_is_proved_by_the_environment() -> None:
    result, requests = run(
        "rooms token r1 --role speaker --for 2h",
        token("speaks"),
        env={"LINGUA_HOST_TOKEN": HOST},
    )
    assert result.stdout == "speaks\n"
    assert requests == [
        rooms_pb2.CreateJoinTokenRequest(
            room_id="r1", host_token=HOST, role=rooms_pb2.ROOM_ROLE_SPEAKER, lifetime_s=7200
        )
    ]


def test_a_token_as_json_has_its_end() -> None:
    result, requests = run(f"rooms token r1 --role listener --host-token {HOST} --json", token("l"))
    assert json.loads(result.stdout) == {"join_token": "l", "expires_ms": T0}
    assert requests[0].lifetime_s == 0


def test_a_lifetime_that_is_none_is_refused() -> None:
    for wrong in ("0s", "2w", "soon"):
        result, _ = run(f"rooms token r1 --role listener --for {wrong}")
        assert result.exit_code == 2
        assert "must be a duration" in result.stderr


def test_whoever_is_not_the_host_is_told_what_is_needed_and_its_token_is_not_shown() -> None:
    error = errors.PermissionDeniedError("this is not the token of the host")
    result, _ = run(
        "rooms token r1 --role listener --host-token room.r1.l.secret",
        Answer("CreateJoinToken", error=error),
    )
    assert result.exit_code == 2
    assert "not the token of the host" in result.stderr
    assert "--host-token or LINGUA_HOST_TOKEN" in result.stderr
    assert "secret" not in result.stderr


# ---- list, show, close ----


def test_list_shows_each_room_on_an_aligned_line() -> None:
    now = int(time.time() * 1000)
    new = room("r2", created_ms=now - 60_500)
    empty = room(speakers=[], languages=[], listeners=0, options=rooms_pb2.RoomOptions(), tenant="")
    result, _ = run("rooms list", listed(empty, new))
    head, *lines = (line.split() for line in result.stdout.splitlines())
    assert " ".join(head) == (
        "ROOM TENANT SPEAKERS LISTENERS UTTERANCES WAITING AGE LANGUAGES NAME"
    )
    assert lines[0] == ["r2", "acme", "1", "5", "12", "2", "60s", "es,fr", "All", "hands"]
    assert lines[1][:6] == ["r1", "-", "0", "0", "12", "0"]
    assert lines[1][-2:] == ["-", "-"]


def test_list_reads_pages_to_the_limit() -> None:
    result, requests = run(
        "rooms list --tenant acme --limit 2 --json",
        listed(room("a"), token="1"),
        listed(room("b"), room("c")),
    )
    assert [each.page_token for each in requests] == ["", "1"]
    assert requests[0].tenant == "acme"
    told = json.loads(result.stdout)
    assert len(told["rooms"]) == 2
    assert told["more"] is True
    assert run("rooms list", listed())[0].stdout == "there are no rooms\n"
    assert run("rooms list --tenant a", listed())[0].stdout == "no rooms match\n"


def test_show_has_speakers_lanes_and_members() -> None:
    result, requests = run(
        "rooms show r1", shown(room()), members(SPEAKER, token="1"), members(LISTENER)
    )
    assert [each.room_id for each in requests] == ["r1"] * 3
    assert requests[2].page_token == "1"
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in (
        "room r1",
        "name All hands",
        "speakers 1 of at most 8",
        "allowed any language",
        "may speak the host, and who has a speaker's token",
        "gateways g1 g2",
        "es 3 1 2 1.50s",
        "fr 2 0 0 -",
    ):
        assert line in lines
    assert any(line.startswith("Ana en") and line.endswith("s1") for line in lines)
    assert any(line.startswith("Ana speaker en -") for line in lines)
    assert any("listener es captions,speech" in line and line.endswith("g1") for line in lines)
    assert "\x1b" not in result.stdout


def test_show_with_a_listeners_token_has_no_members() -> None:
    denied = errors.PermissionDeniedError("only speakers see members")
    result, requests = run(
        "rooms show r1 --room-token room.r1.l",
        shown(room(gateway_instances=[])),
        Answer("ListMembers", error=denied),
    )
    assert requests[0].token == "room.r1.l"
    assert result.exit_code == 0
    assert "MEMBER " not in result.stdout
    assert "shown to its host" in result.stderr


def test_show_as_json_has_everything() -> None:
    result, _ = run("rooms show r1 --json", shown(room()), members(SPEAKER, LISTENER))
    told = json.loads(result.stdout)
    assert told["room"]["languages"][0]["oldest_waiting_ms"] == 1500
    assert [each["role"] for each in told["members"]] == ["SPEAKER", "LISTENER"]
    assert told["more"] is False


def test_show_says_if_there_are_more_members() -> None:
    result, _ = run("rooms show r1 --limit 1", shown(room()), members(SPEAKER, LISTENER, token="1"))
    assert "--limit" in result.stderr


def test_close_says_so_and_proves_the_host() -> None:
    closed = Answer("CloseRoom", rooms_pb2.CloseRoomResponse())
    result, requests = run("rooms close r1", closed, env={"LINGUA_HOST_TOKEN": HOST})
    assert requests == [rooms_pb2.CloseRoomRequest(room_id="r1", host_token=HOST)]
    assert result.stdout == "Closed room r1\n"


@pytest.mark.parametrize(
    ("command", "method"),
    [("show", "GetRoom"), ("close", "CloseRoom"), ("token", "CreateJoinToken")],
)
def test_a_room_that_is_not_known_is_exit_code_4(command: str, method: str) -> None:
    error = errors.RoomNotFoundError("there is no room 'r1'")
    options = " --role speaker" if command == "token" else ""
    result, _ = run(f"rooms {command} r1{options}", Answer(method, error=error))
    assert result.exit_code == 4
    assert result.stderr == (
        "Error: there is no room 'r1'; 'lingua rooms list' shows those that exist\n"
    )
