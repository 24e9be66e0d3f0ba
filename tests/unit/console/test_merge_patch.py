"""Differences of documents, as merge patches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.http.merge_patch import apply, diff

VALUES = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def strict(value: Any) -> Any:
    """A value that compares as JSON does, where true is not 1."""
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [strict(inner) for inner in value]
    return (isinstance(value, bool), value)


@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_makes_the_new_document_of_the_old_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before = strict(old)
    assert strict(apply(old, diff(old, new))) == strict(new)
    assert strict(old) == before


@given(DOCUMENTS)
def test_there_is_no_patch_if_nothing_changed(document: dict[str, Any]) -> None:
    assert diff(document, apply({}, document)) == {}


@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_names_only_what_differs(old: dict[str, Any], new: dict[str, Any]) -> None:
    same = {key for key in old.keys() & new.keys() if strict(old[key]) == strict(new[key])}
    assert not same & diff(old, new).keys()


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"y": None}}),
        ({"a": {"x": 1}}, {"a": {}}, {"a": {"x": None}}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}),
        ({"a": 1}, {"a": {}}, {"a": {}}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": {"x": 1}}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [1]}, {"a": [True]}, {"a": [True]}),
        ({"a": 0}, {"a": False}, {"a": False}),
    ],
)
def test_examples(old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]) -> None:
    found = diff(old, new)
    assert strict(found) == strict(patch)


@pytest.mark.parametrize("new", [{"a": None}, {"a": {"b": None}}, {"c": {"d": {"e": None}}}])
@pytest.mark.parametrize("old", [{}, {"a": 1}, {"a": {"b": 1}}])
def test_a_document_with_null_has_no_patch(old: dict[str, Any], new: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="null"):
        diff(old, new)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # The examples of RFC 7396, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, "bar", "bar"),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_patches_are_applied_as_the_rfc_says(target: Any, patch: Any, result: Any) -> None:
    assert apply(target, patch) == result
