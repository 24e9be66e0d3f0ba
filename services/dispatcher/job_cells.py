"""Which cell has the record, the kept result and the log entries of a job."""

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells


def cell_of(cells: Cells, job_id: str) -> Cell | None:
    """The cell of a job; None if there is no such cell, and therefore no such job."""
    try:
        return cells.of_job(job_id)
    except InvalidMessageError:
        return None
