"""What is at a path of the console."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.http.routes import Kind, route_of


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nodes",
        "/nodes/gpu-1",
        "/jobs",
        "/jobs/s.1.2",
        "/sessions",
        "/sessions/abc",
        "/rooms",
        "/rooms/r1",
        "/instances",
        "/sign-in",
    ],
)
def test_every_view_has_an_address(path: str) -> None:
    assert route_of(path).kind is Kind.VIEW


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/api/v1/overview", "overview"),
        ("/api/v1/nodes/gpu-1", "nodes/gpu-1"),
        ("/api/v1/nodes/gpu%201", "nodes/gpu 1"),
        ("/api/v1/jobs/a.b", "jobs/a.b"),
        ("/api/v1/rooms/r1", "rooms/r1"),
        ("/api/v1/search", "search"),
    ],
)
def test_documents(path: str, document: str) -> None:
    route = route_of(path)
    assert (route.kind, route.path, route.methods) == (Kind.DOCUMENT, document, ("GET",))


@pytest.mark.parametrize(
    ("path", "action", "target"),
    [
        ("/api/v1/nodes/gpu-1/drain", "drain", "gpu-1"),
        ("/api/v1/nodes/gpu-1/ready", "ready", "gpu-1"),
        ("/api/v1/nodes/gpu-1/remove", "remove", "gpu-1"),
        ("/api/v1/jobs/j/cancel", "cancel", "j"),
        ("/api/v1/rooms/r/close", "close", "r"),
    ],
)
def test_actions_are_posted(path: str, action: str, target: str) -> None:
    route = route_of(path)
    assert (route.kind, route.action, route.target) == (Kind.ACTION, action, target)
    assert route.methods == ("POST",)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/nodes/",
        "/nodes/a/b",
        "/instances/a",
        "/api/v1/",
        "/api/v1/nodes/",
        "/api/v1/nodes/a%2Fb",
        "/api/v1/nodes/%00",
        "/api/v1/nodes/%ff",
        "/api/v1/nodes/\udcff",
        "/api/v1/nodes/" + "x" * 257,
        "/api/v1/nodes/a/cancel",
        "/api/v1/jobs/a/drain",
        "/api/v1/sessions/a/remove",
        "/api/v1/sessions/a/close",
        "/api/v1/rooms/a/remove",
        "/api/v2/overview",
        "/API/v1/overview",
    ],
)
def test_nothing_else_is_served(path: str) -> None:
    assert route_of(path).kind is Kind.NOTHING


@given(st.text() | st.text().map(lambda end: "/api/v1/nodes/" + end))
def test_metrics_have_few_labels_whatever_is_asked_for(path: str) -> None:
    route = route_of(path)
    assert len(route.label) < 40
