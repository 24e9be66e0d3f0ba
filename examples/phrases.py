"""The sentences of the conversation, each with a tone of its own pitch.

The sample nodes look up sentences by the measured pitch. They recognise and translate nothing, but
a sentence is right only if the node received the right tone, and complete only if it received all
of it.
"""

from lingua_scheduler.cli.sample_node.phrases import Phrase

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
