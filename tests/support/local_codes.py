"""Language codes that no people speak, so that a test has a direction to itself."""


def local_code(number: int) -> str:
    """One of qaa to qtz, which ISO 639 reserves for local use; from the 521st on with a region."""
    region, code = divmod(number, 20 * 26)
    made = f"q{_letter(code // 26)}{_letter(code % 26)}"
    return f"{made}-{_letter(region // 26)}{_letter(region % 26)}" if region else made


def _letter(at: int) -> str:
    return chr(ord("a") + at)
