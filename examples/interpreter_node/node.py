"""The node itself: engines, handler, capabilities and load."""

from interpreter_node.choice import LANGUAGES, Engines
from interpreter_node.cpu import CpuLoad
from interpreter_node.interpreter import Interpreter
from interpreter_node.settings import Settings
from lingua_scheduler.sdk import HeldAudio, Node

# About three minutes of 16 kHz PCM: far more than is held before finished sentences are returned.
MAX_TURN_BYTES = 6 * 1024 * 1024


def interpreter_node(settings: Settings, engines: Engines) -> Node:
    """Create the node; `run` connects it."""
    node = Node(
        node_id=settings.node_id,
        asr=engines.heard,
        semantic=engines.heard,
        nmt=(*engines.directions, *engines.captions),
        tts=LANGUAGES if engines.voice is not None else (),
        slots=settings.slots,
        software="interpreter node",
        token=settings.token_file,
        tls=settings.tls,
    )
    node.load = CpuLoad()
    held = HeldAudio(max_turn_bytes=MAX_TURN_BYTES) if settings.join else None
    # A blocking handler: the SDK runs it in as many threads as there are slots.
    node.handler(
        Interpreter(
            recognizer=engines.recognizer,
            translator=engines.translator,
            voice=engines.voice,
            detector=engines.detector,
            held=held,
        )
    )
    return node
