"""The SDK's log: stable events with fields.

Call sites log a constant event and put everything that varies into `extra`. Most apps and nodes
print logs with a plain formatter, which does not show extra fields, so they are also appended to
the message as `key=value`.
"""

import logging
from collections.abc import MutableMapping
from typing import Any


class _EventLog(logging.LoggerAdapter[logging.Logger]):
    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = kwargs.get("extra") or {}
        # Without arguments, logging does not interpret percent signs in the message.
        return " ".join([str(msg), *(f"{key}={value}" for key, value in fields.items())]), kwargs


log = _EventLog(logging.getLogger("lingua_scheduler.sdk"))
