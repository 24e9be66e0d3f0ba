"""A scheduler whose processes send spans to a collector, and how tests read them."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.e2e.span_collector import SpanCollector, Trace
from tests.support.raw_client import RawClient, new_session
from tests.support.raw_node import RawNode
from tests.support.services import ServiceProcess

# Nothing that is said may be in a span: neither the audio, nor a text, nor a token.
AUDIO = b"AudioMark" * 400
TEXT = "TextMark"

# A node whose owner traces too, as an app does it.
NODE = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from lingua_scheduler.sdk import Job, Node, Stage, Timing, Translated

provider = TracerProvider(resource=Resource.create({"service.name": "my-node"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
node = Node(node_id="traced", asr=["en"], semantic=["en"], tts=["es"], slots=4)
node.load = lambda: (0.0, 0.0)

@node.handler
async def translate(job: Job) -> Translated:
    with trace.get_tracer("mine").start_as_current_span("my model"):
        await asyncio.sleep(0.03)
    asr = Timing(stage=Stage.ASR, started_ms=0, took_ms=10)
    timings = [asr, Timing(stage=Stage.NMT, started_ms=10, took_ms=15)]
    return Translated(source="TextMark", translated="TextMark", timings=timings)

node.run(sys.argv[1])
"""


@dataclass
class Traced:
    """Every service, with a collector; and a gateway that samples nothing.

    The pool service, the first dispatcher and the gateway may share a process.
    """

    collector: SpanCollector
    pool: ServiceProcess
    dispatchers: list[ServiceProcess]
    gateway: ServiceProcess
    silent_gateway: ServiceProcess


@contextlib.contextmanager
def traced_node(traced: Traced) -> Iterator[None]:
    """A node in a process that traces."""
    command = [sys.executable, "-c", NODE, traced.dispatchers[0].address]
    node = subprocess.Popen(command, env={**os.environ, **traced.collector.environ})
    try:
        yield
    finally:
        node.kill()
        node.wait()


async def raw_node(at: ServiceProcess, language: str, name: str = "a") -> RawNode:
    hello = dispatcher_pb2.Hello(
        node_id=f"{language}-{name}",
        incarnation=name,
        max_concurrent_jobs=1,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=[language], semantic_langs=[language], tts_langs=["es"]
        ),
    )
    node = RawNode(at.address, hello)
    await node.open()
    return node


async def speak(client: RawClient, language: str) -> str:
    """Opens a session and says a sentence; returns its resume token."""
    opened = await client.open(new_session(language))
    await client.send(AUDIO)
    await client.send(AUDIO, final=True)
    return opened.resume_token


async def collected(traced: Traced, job_id: str, *names: str) -> Trace:
    """The trace of a job, when it has these spans."""
    wanted = set(names)
    return await asyncio.to_thread(
        traced.collector.until,
        job_id,
        lambda trace: wanted <= {span.name for span in trace.spans},
    )


def shown(dispatcher: ServiceProcess, job_id: str, *options: str, traceparent: str = "") -> str:
    """What `lingua jobs show` prints."""
    args = ["--dispatcher", dispatcher.address, "jobs", "show", job_id, *options]
    env = {"COLUMNS": "120", "TRACEPARENT": traceparent}
    result = CliRunner(env=env).invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.stdout


def steps_in(shown: str) -> list[tuple[str, str]]:
    """The steps of a waterfall with their words on how they went."""
    lines = shown.split("STEP", 1)[1].split("\n\n")[0].splitlines()[1:]
    cells = [line.split("|") for line in lines]
    return [(label.rstrip(), " ".join(rest.split()[2:])) for label, _, rest in cells]
