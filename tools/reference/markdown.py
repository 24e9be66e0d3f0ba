"""Markdown that GitHub and the site show alike."""

import re


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("\n\n", "<br>") for cell in cells) + " |"


def slug(heading: str) -> str:
    """What a heading is called in links."""
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def escaped(text: str) -> str:
    """Plain text for a page or a cell; what is in backticks stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    plain = (
        part if part.startswith("`") else re.sub(r"([*\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", part)
        for part in parts
    )
    return "".join(plain).replace("|", "\\|").replace("<", "&lt;")


def sentence(text: str) -> str:
    """The text with a capital at its beginning and a full stop at its end."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
