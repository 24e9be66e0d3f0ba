"""The SDK for node owners: a node in ten lines.

    from lingua_scheduler.sdk import Job, Node, Translated

    node = Node(node_id="gpu-1", asr=["en"], semantic=["en"], tts=["es"], slots=2)

    @node.handler
    async def translate(job: Job):
        yield Translated(source="hello", translated="hola")

    node.run("127.0.0.1:7720")

`protocol` is the heart: what a node says on which event, without I/O. `serving` is the shell around
it (one stream, one timer), `workers` runs handlers. It imports the contracts (`v1`), gRPC and the
OpenTelemetry API, and nothing else of this project, so a node needs no service's code.
"""

from lingua_scheduler.sdk.audio import AudioFormat, Encoding
from lingua_scheduler.sdk.channels import Channels
from lingua_scheduler.sdk.errors import HeldTooLargeError, JobError, NodeRefusedError, SdkError
from lingua_scheduler.sdk.held_audio import HeldAudio, Turn
from lingua_scheduler.sdk.job import Job, Pair, Reason, Stage
from lingua_scheduler.sdk.node import Health, Node
from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Timing, Translated

__all__ = [
    "AudioFormat",
    "Channels",
    "Encoding",
    "Health",
    "Held",
    "HeldAudio",
    "HeldTooLargeError",
    "Job",
    "JobError",
    "NoSpeech",
    "Node",
    "NodeRefusedError",
    "Pair",
    "Partial",
    "Reason",
    "SdkError",
    "Stage",
    "Timing",
    "Translated",
    "Turn",
]
