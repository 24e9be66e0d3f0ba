"""Cells: prefixes, ids that name their cell, and orders of cells."""

from collections import Counter

import pytest

from lingua_scheduler.services.runtime.contract.cell_names import (
    cell_of_id,
    cell_of_job,
    id_in_cell,
    ranked,
)
from lingua_scheduler.services.runtime.contract.job_ids import job_id
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    InvalidMessageError,
    SettingsError,
)
from lingua_scheduler.services.runtime.redis.cells.cells import Cells, CellState
from lingua_scheduler.services.runtime.redis.cells.prefixes import cell_prefix, tag
from lingua_scheduler.services.runtime.settings.redis_url import slot_of
from lingua_scheduler.services.runtime.settings.settings import Settings, masked_url

# All keys of a cell have its tag: another one would lose them.
TAGS = [
    "c0.1",
    "c1.4",
    "c2.42",
    "c3.43",
    "c4.1",
    "c5",
    "c6",
    "c7.13",
    "c8.1",
    "c9.8",
    "c10.4",
    "c11.1",
]


def test_tags_never_change() -> None:
    assert [tag(cell) for cell in range(len(TAGS))] == TAGS


@pytest.mark.parametrize("masters", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("cells", [12, 24, 96])
def test_a_multiple_of_12_cells_is_even_over_the_masters(cells: int, masters: int) -> None:
    share = 16384 / masters
    load = Counter(int(slot_of(f"{{{tag(cell)}}}") / share) for cell in range(cells))
    assert list(load.values()) == [cells // masters] * masters


@pytest.mark.parametrize("cells", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("masters", [2, 3, 4])
def test_few_cells_are_as_even_as_they_can_be(cells: int, masters: int) -> None:
    share = 16384 / masters
    load = Counter(int(slot_of(tag(cell)) / share) for cell in range(cells))
    counts = [load[master] for master in range(masters)]
    assert max(counts) - min(counts) <= 1


def test_the_first_cell_keeps_the_keys_of_a_deployment_with_one() -> None:
    assert cell_prefix("lingua:v1", 0, is_cluster=False) == "lingua:v1"
    assert cell_prefix("lingua:v1:{c7}", 0, is_cluster=True) == "lingua:v1:{c7}"
    assert cell_prefix("lingua:v1", 0, is_cluster=True) == f"lingua:v1:{{{TAGS[0]}}}"
    assert cell_prefix("lingua:v1", 3, is_cluster=False) == f"lingua:v1:{{{TAGS[3]}}}"
    assert cell_prefix("lingua:v1:{c7}", 3, is_cluster=True) == f"lingua:v1:{{{TAGS[3]}}}"


@pytest.mark.parametrize("cell", [0, 1, 7, 12, 999])
def test_ids_name_their_cell(cell: int) -> None:
    session = id_in_cell("0123abcd", cell)
    assert cell_of_id(session) == cell
    job = job_id("tenant:key", session)
    assert (len(job), cell_of_job(job)) == (32, cell)


@pytest.mark.parametrize("id_", ["", "a", "a.c", "a.c0", "a.c01", "a.c7.", "c7", "a.c1000", "a.C7"])
def test_other_ids_belong_to_the_first_cell(id_: str) -> None:
    assert cell_of_id(id_) == 0


def test_jobs_of_one_cell_have_the_same_end() -> None:
    assert job_id("a", "s")[-3:] == job_id("b", "t")[-3:] == "000"
    for other in ("not-a-job", "job-10", "job_1", "0x1", "+12", "a", ""):
        assert cell_of_job(other) == 0


def test_an_order_of_cells_changes_little_if_one_is_added() -> None:
    before, after = ranked("session", range(11)), ranked("session", range(12))
    assert [cell for cell in after if cell != 11] == before


def test_each_cell_comes_first_for_an_equal_share_of_keys() -> None:
    firsts = Counter(ranked(f"key-{n}", range(12))[0] for n in range(6000))
    assert set(firsts) == set(range(12))
    assert max(firsts.values()) < 1.25 * 500
    assert min(firsts.values()) > 0.75 * 500


def cells_of(**settings: object) -> Cells:
    return Cells(Settings(**{"redis_url": "redis://host", **settings}), {})


def test_one_cell_has_the_configured_prefix() -> None:
    cells = cells_of()
    assert cells.one
    assert cells.first.prefix == "lingua:v1"
    # An id that looks like one of another cell may come from anybody.
    assert cells.of_session("s.c7") is cells.of_job("ffff") is cells.first


def test_cells_on_one_server_share_its_connection() -> None:
    assert len(cells_of(cells=12).servers) == 1
    two = cells_of(cells=4, redis_url="redis://a redis://b redis://a redis://b")
    assert [cell.link.server for cell in two.all] == [*two.servers] * 2


def test_cells_of_a_cluster_have_a_link_each() -> None:
    cells = cells_of(cells=3, redis_url="redis+cluster://a:7000,b:7000")
    assert len(cells.servers) == 3
    assert len({slot_of(cell.prefix) for cell in cells.all}) == 3


def test_an_id_of_a_cell_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="session_id: names cell 4, and there are only 4"):
        cells_of(cells=4).of_session("s.c4")


def test_a_node_goes_to_a_cell_that_is_ready() -> None:
    cells = cells_of(cells=4)
    usual = {f"n{n}": cells.of_new_node(f"n{n}") for n in range(200)}
    assert set(usual.values()) == set(cells.all)
    cells.all[2].state = CellState.DRAINING
    for node, cell in usual.items():
        now = cells.of_new_node(node)
        assert now is not cells.all[2]
        assert cell is now or cell is cells.all[2]


def test_new_sessions_need_a_cell_that_is_open() -> None:
    with pytest.raises(DependencyDownError, match="no cell takes new sessions"):
        cells_of(cells=4).for_new()


def test_there_is_one_url_for_all_cells_or_one_for_each() -> None:
    with pytest.raises(SettingsError, match="2 URLs and LINGUA_CELLS=3"):
        Settings(redis_url="redis://a redis://b", cells=3)
    with pytest.raises(SettingsError, match="LINGUA_REDIS_URL"):
        Settings(redis_url="redis://a nonsense", cells=2)


def test_passwords_of_all_urls_are_masked() -> None:
    assert masked_url("redis://u:a@x redis://v:b@y") == "redis://u:***@x redis://v:***@y"
