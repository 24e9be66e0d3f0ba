"""The subprotocols that clients of the web entry offer."""

from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.web.subprotocols import (
    offered_tokens,
    subprotocols,
)


@given(st.text())
def test_any_header_can_be_read(header: str) -> None:
    assert offered_tokens(subprotocols([header])) is not None


def test_a_token_is_one_of_the_subprotocols() -> None:
    offered = subprotocols(["lingua.v1, bearer.a.b-c_d", "other,"])
    assert offered == ["lingua.v1", "bearer.a.b-c_d", "other"]
    assert offered_tokens(offered) == ["a.b-c_d"]
