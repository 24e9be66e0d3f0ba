"""Writes the pages that are made from the code, or checks that they are current.

python -m tools.reference            writes them
python -m tools.reference --check    exit code 1 if a page is not what the code says
"""

import sys
from pathlib import Path

from tools.reference import api, cli, errors, metrics, settings

ROOT = Path(__file__).parents[2]
PAGES = {
    "docs/api.md": api.text,
    "docs/reference/cli.md": cli.text,
    "docs/reference/errors.md": errors.text,
    "docs/reference/metrics.md": metrics.text,
    "docs/reference/settings.md": settings.text,
}


def main() -> None:
    """Writes or checks all pages."""
    stale = []
    for name, text in PAGES.items():
        page, made = ROOT / name, text()
        if page.exists() and page.read_text() == made:
            continue
        stale.append(name)
        if sys.argv[1:] != ["--check"]:
            page.parent.mkdir(exist_ok=True)
            page.write_text(made)
            print(f"wrote {name}")
    if stale and sys.argv[1:] == ["--check"]:
        sys.exit(
            f"{', '.join(stale)}: not what the code says. Run 'make reference', and commit it."
        )


if __name__ == "__main__":
    main()
