"""The interpreter node is an example and its measures are a benchmark: neither is installed."""

import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(_ROOT / "examples"), str(_ROOT / "bench")]
