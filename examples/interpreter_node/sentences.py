"""Checks and repairs recognised text: is it a complete sentence, and what is not meant?

The repair is deliberately light: it removes what is certainly wrong, and rewrites nothing.
"""

import re

# Words after which a sentence continues, even if the recogniser adds a full stop.
_EN = """
a an the and or but because so if when while that which who whose to of in on at for from with by
about into my your his her its our their this these those is are was were be am will would can
could should must have has had do does did not very more than as
"""
_ES = """
un una unos unas el la los las y e o u pero porque si cuando mientras que quien cuyo a de del al en
con por para sin sobre entre hasta desde mi tu su mis tus sus nuestro nuestra este esta estos estas
es son era eran está están fue muy más como me te se lo le
"""
_GO_ON = {"en": frozenset(_EN.split()), "es": frozenset(_ES.split())}
_FILLERS = {
    "en": frozenset(["uh", "um", "uhm", "erm", "hmm", "mm"]),
    "es": frozenset(["eh", "em", "ehm", "mmm", "mm"]),
}
_END = re.compile(r"(?<=[.!?…])\s+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
# A confused recogniser repeats itself.
_REPEATED = re.compile(r"\b(\w+(?:[\s,]+\w+){0,5}?)(?:[\s,.]+\1\b){2,}", re.IGNORECASE | re.UNICODE)
_STUTTER = re.compile(r"\b([^\W\d_]{1,3})(?:\s+\1\b)+", re.IGNORECASE | re.UNICODE)


def words(text: str) -> list[str]:
    """The words in lower case, without punctuation."""
    return [found.lower() for found in _WORD.findall(text)]


def split_sentences(text: str) -> list[str]:
    """Split into sentences; none is empty."""
    return [each for each in _END.split(text.strip()) if each]


def is_unfinished(text: str, language: str) -> bool:
    """Whether more of the sentence must follow."""
    said = words(text)
    if not said:
        return False
    if said[-1] in _GO_ON.get(language, frozenset()):
        # "To whom?" and "Who is it for?" end like this, too; "I like the?" does not.
        return len(said) > 1
    # A missing full stop alone means little, since recognisers often omit it.
    return text.rstrip().endswith(("...", "…", ",", "-", ":"))


def repaired(text: str, language: str) -> str:
    """Remove fillers, stutters and loops; add a capital and a full stop."""
    fillers = _FILLERS.get(language, frozenset())
    kept = [each for each in text.split() if each.strip(",.;:!?¿¡…").lower() not in fillers]
    clean = _STUTTER.sub(r"\1", _REPEATED.sub(r"\1", " ".join(kept)))
    clean = clean.replace("…", ".").replace("...", ".").strip(" ,;:-")
    if not clean:
        return ""
    if not clean.endswith((".", "!", "?")):
        clean += "."
    return re.sub(r"\w", lambda first: first[0].upper(), clean, count=1)
