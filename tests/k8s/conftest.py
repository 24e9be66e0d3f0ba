"""Fixtures for tests of the deployment."""

import pytest

from tests.k8s.manifests import LAYERS, Manifests, render


@pytest.fixture(params=LAYERS)
def manifests(request: pytest.FixtureRequest) -> Manifests:
    """Each layer in turn."""
    return render(request.param)


@pytest.fixture
def production() -> Manifests:
    """The overlay for production."""
    return render("overlays/production")


@pytest.fixture
def dev() -> Manifests:
    """The overlay for one small cluster."""
    return render("overlays/dev")


@pytest.fixture
def small() -> Manifests:
    """The overlay for production in two pods, each with all services."""
    return render("overlays/small")


@pytest.fixture(params=["overlays/production", "overlays/small"])
def secured(request: pytest.FixtureRequest) -> Manifests:
    """Each overlay for people whom one does not know."""
    return render(request.param)
