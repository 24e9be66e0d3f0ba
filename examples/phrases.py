"""The sentences that tones of the examples stand for: each has a tone with its own pitch.

The sample nodes look up sentences by the measured pitch. They recognise and translate nothing, but
a sentence is right only if the node received the right tone, and complete only if it received all
of it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Phrase:
    """A sentence: the pitch of its tone, its duration, and its translations."""

    hertz: int
    seconds: float
    texts: dict[str, str]

    def in_language(self, language: str, spoken_s: float) -> str:
        """As much of the sentence as was spoken in this time; "" if it has no such translation."""
        text = self.texts.get(language, "")
        heard = round(len(text) * spoken_s / self.seconds)
        return text if heard >= len(text) else f"{text[:heard].rstrip()}…"


# A node can distinguish these pitches within half a second of tone. No sentence takes more than 32
# columns, so that two fit side by side on a terminal.
GREETING = Phrase(200, 1.2, {"zh": "你好，很高兴认识你。", "en": "Hello, nice to meet you."})
ANSWER = Phrase(320, 1.0, {"en": "Nice to meet you, too!", "zh": "我也很高兴认识你！"})
DIRECTIONS = Phrase(
    220, 6.6, {"zh": "从机场坐地铁，中途换二号线。", "en": "Metro first, then take line two."}
)
ORDER = Phrase(240, 1.8, {"zh": "我想要一杯热茶，谢谢。", "en": "A cup of hot tea, please."})
NOODLES = Phrase(
    260, 1.8, {"zh": "这家面很有名，一点也不辣。", "en": "Famous noodles, and not spicy."}
)
QUESTION = Phrase(350, 0.6, {"en": "Sorry, is it spicy?", "zh": "不好意思，辣不辣？"})
APPOINTMENT = Phrase(
    280, 2.7, {"zh": "那我们明天中午十二点见。", "en": "Let's meet tomorrow at noon."}
)
GOODBYE = Phrase(380, 0.6, {"en": "See you tomorrow!", "zh": "明天见！"})
GOOD_MORNING = Phrase(410, 1.5, {"en": "Good morning!", "es": "¡Buenos días!", "zh": "早上好！"})
PHRASES = (
    GREETING,
    ANSWER,
    DIRECTIONS,
    ORDER,
    NOODLES,
    QUESTION,
    APPOINTMENT,
    GOODBYE,
    GOOD_MORNING,
)


def write_phrases(path: Path) -> None:
    """Write the phrases to a file for the nodes."""
    path.write_text(json.dumps([asdict(each) for each in PHRASES]))


def read_phrases(path: Path) -> list[Phrase]:
    """Read the file of `write_phrases`."""
    return [Phrase(**each) for each in json.loads(path.read_text())]
