"""The Helm chart: it renders what kustomize renders, is valid, and refuses wrong values."""

import pytest

from tests.k8s.chart import LAYERS, normal, rendered
from tests.k8s.manifests import render


@pytest.mark.parametrize("layer", LAYERS)
def test_the_chart_and_kustomize_render_the_same(layer: str) -> None:
    assert normal(rendered(layer)) == normal(render(layer))
