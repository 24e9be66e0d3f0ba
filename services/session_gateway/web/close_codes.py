"""How a connection to the web entry is closed if there is an error."""

import json
from collections.abc import Mapping
from typing import TypeAlias

from google.protobuf.json_format import MessageToDict

from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.v1 import common_pb2

_Reason: TypeAlias = common_pb2.ErrorReason.ValueType

DONE = 1000
GO_AWAY = 1001
INTERNAL = 1011
SILENT = 4408
TOO_LARGE = 4413

CLOSE_CODES: Mapping[_Reason, int] = {
    common_pb2.ERROR_REASON_DRAINING: GO_AWAY,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN: 1013,
    common_pb2.ERROR_REASON_BACKPRESSURE: 1013,
    common_pb2.ERROR_REASON_INVALID_MESSAGE: 4400,
    common_pb2.ERROR_REASON_UNAUTHENTICATED: 4401,
    common_pb2.ERROR_REASON_PERMISSION_DENIED: 4403,
    common_pb2.ERROR_REASON_SESSION_NOT_FOUND: 4404,
    common_pb2.ERROR_REASON_ROOM_NOT_FOUND: 4404,
    common_pb2.ERROR_REASON_SESSION_TAKEN_OVER: 4409,
    common_pb2.ERROR_REASON_ROOM_CLOSED: 4410,
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED: 4429,
    common_pb2.ERROR_REASON_ROOM_FULL: 4429,
}


def close_code(error: LinguaError) -> int:
    """The code with which an error closes a connection."""
    return CLOSE_CODES.get(error.reason, INTERNAL)


def error_frame(error: common_pb2.Error) -> str:
    """An error event as a text frame, for errors that no session tells its client."""
    return json.dumps({"events": [{"error": MessageToDict(error)}]})
