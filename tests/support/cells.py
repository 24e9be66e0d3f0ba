"""The cells of a scheduler, for tests that use the stores of a service without the service."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.cells.prefixes import cell_prefix
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.support.services import PATIENT_REDIS_MS

in_one_cell = pytest.mark.skipif(
    os.environ.get("LINGUA_CELLS", "1") != "1",
    reason="about nodes, keys or limits that share a cell",
)
"""For tests of what holds only within a cell."""


def cell_settings(redis_url: str, prefix: str, **fields: Any) -> Settings:
    """Settings with as many cells as LINGUA_CELLS says, unless the fields say otherwise."""
    return Settings(
        **{
            "redis_url": redis_url,
            "redis_prefix": prefix,
            "redis_timeout_ms": PATIENT_REDIS_MS,
            "cells": int(os.environ.get("LINGUA_CELLS", 1)),
            **fields,
        }
    )


def prefix_of(prefix: str, id_: str) -> str:
    """The prefix of the cell in which a session or room is, on a server that is no cluster."""
    return cell_prefix(prefix, cell_of_id(id_), is_cluster=False)


@asynccontextmanager
async def open_cells(settings: Settings) -> AsyncIterator[Cells]:
    """Cells that are open inside the block."""
    cells = Cells(settings, load_scripts())
    await cells.open()
    try:
        yield cells
    finally:
        await cells.close()
