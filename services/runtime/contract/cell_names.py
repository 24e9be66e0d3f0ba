"""How ids say which cell they belong to (docs/cells.md), and orders of cells.

A session or room in cell 7 has an id that ends in `.c7`; an id without such an end belongs to
cell 0. The last three digits of a job id, in hex, are the cell of its session. So an id keeps its
cell whatever number of cells there are.
"""

import hashlib
import re
from collections.abc import Iterable

# Hex digits of a job id that name its cell.
JOB_DIGITS = 3

# Looked up several times for each job.
_OF_JOB_END = {f"{cell:0{JOB_DIGITS}x}": cell for cell in range(16**JOB_DIGITS)}
_ID_END = re.compile(r"\.c([1-9][0-9]{0,2})")


def id_in_cell(id_: str, cell: int) -> str:
    """A new id of a session or room that lives in this cell."""
    return f"{id_}.c{cell}" if cell else id_


def cell_of_id(id_: str) -> int:
    """The cell of a session or room."""
    found = _ID_END.fullmatch(id_, id_.rfind("."))
    return int(found[1]) if found else 0


def cell_of_job(job_id: str) -> int:
    """The cell of a job, which is that of its session."""
    # Any other end is not of one of our ids: it names no job, in whichever cell it is looked for.
    return _OF_JOB_END.get(job_id[-JOB_DIGITS:], 0)


def ranked(key: str, cells: Iterable[int]) -> list[int]:
    """The cells in an order of the key's own, in which adding or removing one moves no other.

    Each comes first for an equal share of all keys (rendezvous hashing).
    """
    return sorted(cells, key=lambda cell: _weight(key, cell), reverse=True)


def _weight(key: str, cell: int) -> bytes:
    return hashlib.blake2b(f"{cell} {key}".encode(), digest_size=8).digest()
