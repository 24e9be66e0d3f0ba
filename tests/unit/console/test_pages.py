"""One page of many things."""

from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.store.pages import page_of


@given(
    st.lists(st.integers(), unique=True, max_size=300),
    st.booleans(),
    st.integers(0, 310),
    st.integers(1, 200),
)
def test_pages_are_parts_of_the_sorted_list(
    found: list[int], desc: bool, offset: int, limit: int
) -> None:
    page = page_of(found, key=lambda each: each, desc=desc, offset=offset, limit=limit)
    assert list(page) == sorted(found, reverse=desc)[offset : offset + limit]
