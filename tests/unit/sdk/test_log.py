"""The SDK's log lines."""

import logging

import pytest

from lingua_scheduler.sdk._transport.log import log


def test_fields_are_in_the_message_and_in_the_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lingua_scheduler.sdk"):
        log.info("connected", extra={"node_id": "gpu-1", "reason": "100 %s"})
        log.info("draining")

    first, second = caplog.records
    assert first.getMessage() == "connected node_id=gpu-1 reason=100 %s"
    assert vars(first)["node_id"] == "gpu-1"
    assert second.getMessage() == "draining"
