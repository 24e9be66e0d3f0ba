"""Checks of requests: every bad field is named, with what is allowed, before anything changes."""

import re
from collections.abc import Collection, Mapping, Sequence

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.v1 import common_pb2

# What an id and a language code look like.
ID = r"[A-Za-z0-9._-]{1,128}"
LANGUAGE = r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}"
_ID = re.compile(ID)
_LANGUAGE = re.compile(LANGUAGE)
_CURSOR = re.compile(r"[0-9]{1,20}")
# Attempts of a job, and jobs of a node, that anybody may speak of.
MAX_ATTEMPT = 1000
MAX_CAPACITY = 1000
_MAX_LANGUAGES = 256
# More than there are, so that repeats do no harm.
_MAX_STAGES = 100
_MAX_FEATURES = 32
_MAX_FEATURE_CHARS = 256


class Check:
    """Collects what is wrong with a message, and raises it all at once.

    Args:
        path: what stands before every field's name, such as "job.".
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: list[tuple[str, str]] = []
        self._entry: tuple[str, int] | None = None

    def entry(self, field: str, at: int) -> None:
        """From here on, fields are those of an entry of a list. Costs nothing while all is well."""
        self._entry = (field, at)

    def no(self, field: str, problem: str) -> None:
        """Notes that a field is bad."""
        if self._entry:
            field = f"{self._entry[0]}[{self._entry[1]}].{field}"
        self._found.append((self._path + field, problem))

    def done(self) -> None:
        """Raises InvalidMessageError where a field was bad."""
        if self._found:
            listed = "; ".join(f"{field}: {problem}" for field, problem in self._found[:5])
            more = f" (and {len(self._found) - 5} more)" if len(self._found) > 5 else ""
            raise InvalidMessageError(listed + more, fields=self._found[:20])

    def id(self, field: str, value: str, *, optional: bool = False) -> None:
        """An id of 1 to 128 safe characters."""
        if not (value or optional):
            self.no(field, "must not be empty")
        elif value and not _ID.fullmatch(value):
            self.no(field, f"{_shown(value)} must be 1 to 128 characters of A-Z a-z 0-9 . _ -")

    def language(self, field: str, value: str) -> None:
        """A BCP 47 tag."""
        if not _LANGUAGE.fullmatch(value):
            self.no(field, f"{_shown(value)} must be a language code such as 'en' or 'zh-hant'")

    def languages(self, field: str, values: Sequence[str], *, optional: bool = False) -> None:
        """A list of language codes."""
        if not (values or optional):
            self.no(field, "must name at least one language")
        self.at_most(field, values, _MAX_LANGUAGES)
        for at, value in enumerate(values[:_MAX_LANGUAGES]):
            self.language(f"{field}[{at}]", value)

    def pair(self, field: str, pair: common_pb2.LanguagePair) -> None:
        """A direction."""
        if not (_LANGUAGE.fullmatch(pair.src) and _LANGUAGE.fullmatch(pair.tgt)):
            self.language(f"{field}.src", pair.src)
            self.language(f"{field}.tgt", pair.tgt)

    def number(self, field: str, value: float, low: float, high: float) -> None:
        """A number in a range; what is not a number is in none."""
        if not low <= value <= high:
            self.no(field, f"{value:g} must be from {low:g} to {high:g}")

    def at_most(self, field: str, values: Collection[object], limit: int) -> None:
        """A list that is not too long."""
        if len(values) > limit:
            self.no(field, f"has {len(values)} entries; at most {limit} are allowed")

    def one_of(self, field: str, value: int, allowed: Collection[int], names: str) -> None:
        """An enum value that has a meaning here."""
        if value not in allowed:
            self.no(field, f"{value} must be {names}")

    def text(self, field: str, value: str, limit: int) -> None:
        """Free text that is not too long."""
        if len(value) > limit:
            self.no(field, f"has {len(value)} characters; at most {limit} are allowed")

    def attempt(self, field: str, attempt: common_pb2.AttemptRef) -> None:
        """A try at a job."""
        if not (_ID.fullmatch(attempt.job_id) and 1 <= attempt.attempt <= MAX_ATTEMPT):
            self.id(f"{field}.job_id", attempt.job_id)
            self.number(f"{field}.attempt", attempt.attempt, 1, MAX_ATTEMPT)

    def attempts(self, field: str, attempts: Sequence[common_pb2.AttemptRef]) -> None:
        """What a node runs: no more than any node can."""
        self.at_most(field, attempts, MAX_CAPACITY)
        for at, attempt in enumerate(attempts[:MAX_CAPACITY]):
            self.attempt(f"{field}[{at}]", attempt)

    def stages(self, field: str, stages: Sequence[int]) -> None:
        """Stages that exist."""
        if not stages:
            return
        self.at_most(field, stages, _MAX_STAGES)
        for at, stage in enumerate(stages[:_MAX_STAGES]):
            self.one_of(f"{field}[{at}]", stage, range(1, 6), "a StageKind")

    def load(self, field: str, load: common_pb2.NodeLoad) -> None:
        """How busy a machine is."""
        self.number(f"{field}.cpu", load.cpu, 0, 1)
        self.number(f"{field}.gpu", load.gpu, 0, 1)

    def audio_format(self, field: str, audio: common_pb2.AudioFormat) -> None:
        """How audio is written."""
        self.one_of(f"{field}.encoding", audio.encoding, (1, 2), "PCM_S16LE or OPUS")
        self.number(f"{field}.sample_rate_hz", audio.sample_rate_hz, 8000, 48000)
        self.number(f"{field}.channels", audio.channels, 1, 2)

    def features(self, field: str, features: Mapping[str, str]) -> None:
        """Options for the node."""
        if not features:
            return
        self.at_most(field, features, _MAX_FEATURES)
        for name, value in list(features.items())[:_MAX_FEATURES]:
            self.text(field, name, _MAX_FEATURE_CHARS)
            self.text(f"{field}[{name[:40]!r}]", value, _MAX_FEATURE_CHARS)

    def preference(self, preferred_node_id: str, strict: bool, path: str = "") -> None:
        """The node that is preferred, and whether it is the only one."""
        self.id(f"{path}preferred_node_id", preferred_node_id, optional=True)
        if strict and not preferred_node_id:
            self.no(f"{path}strict", "needs preferred_node_id")

    def cursor(self, field: str, token: str) -> None:
        """A page token: empty, or a number of 64 bits that Redis gave as a cursor."""
        if token and not (_CURSOR.fullmatch(token) and int(token) < 2**64):
            self.no(field, f"{_shown(token)} is not from an earlier answer")


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:40] + "...")
