"""A collector that counts the spans that it receives, for `traces.py`.

`traces.py` runs this as a process, with the port as argument. It prints READY and answers each line
on stdin with one line of JSON: the number of spans so far.
"""

import asyncio
import json
import sys
from typing import Any

import grpc
import uvloop
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """Counts spans."""

    def __init__(self) -> None:
        self.spans = 0

    async def Export(self, request: Any, context: object) -> Any:  # noqa: N802
        """Receive a batch."""
        for resource in request.resource_spans:
            self.spans += sum(len(scope.spans) for scope in resource.scope_spans)
        return trace_service_pb2.ExportTraceServiceResponse()


async def main(port: int) -> None:
    """Serve until stdin ends."""
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("READY", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({"spans": collector.spans}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
