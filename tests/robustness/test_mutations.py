"""Mutations fit the sources: one that does not would be noticed only by the next long run."""

import pytest

from tests.robustness.mutations import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.rule)
def test_a_mutation_fits_its_source(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    files = [part for part in mutation.caught_by.split() if part.endswith(".py")]
    assert all((ROOT / each).is_file() for each in files)
