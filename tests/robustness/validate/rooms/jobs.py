"""An utterance costs one job for each language, not for each listener."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.robustness.history import History
from tests.robustness.validate.rooms.lanes import languages, receipts, speakers
from tests.robustness.validate.violation import Violation
from tests.support.records import Record

RULE = "rooms: one job a language"

# By language: the id of a job, and whether it makes speech.
Jobs = dict[str, set[tuple[str, bool]]]


def an_utterance_has_a_job_a_language(history: History) -> Iterator[Violation]:
    """By the nodes' records; and only languages that somebody asked for have any."""
    jobs = jobs_of(history)
    recorded = {node.node for node in history.nodes}
    for room, speaker in speakers(history):
        asked = {
            each["language"]
            for listener in room.listeners
            for each in listener.of("joined", "changing", "changed")
        }
        # A hostile node does not tell what it was given.
        untold = {
            each["index"]
            for each in speaker.events
            if each["what"] == "accepted" and each["node"] not in recorded
        }
        for receipt in receipts(speaker):
            done = jobs[room.who[speaker.name], receipt["index"]]
            if what := _wrong(receipt, done, asked, is_told=receipt["index"] not in untold):
                yield Violation(RULE, speaker.name, f"utterance {receipt['index']}: {what}")
                break


def jobs_of(history: History) -> dict[tuple[str, int], Jobs]:
    """What nodes were given, by the speaker's name at nodes and the index of the utterance."""
    jobs: dict[tuple[str, int], Jobs] = defaultdict(lambda: defaultdict(set))
    for node in history.nodes:
        for each in node.of("assigned"):
            if "tgt" in each:
                job = (each["job"], each["speech"])
                jobs[each["session"], each["index"]][each["tgt"]].add(job)
    return jobs


def _wrong(receipt: Record, done: Jobs, asked: set[str], *, is_told: bool) -> str:
    told = languages(receipt)
    if told - asked:
        return f"nobody listened to {sorted(told - asked)}"
    if set(done) - told:
        return f"nodes had jobs in {sorted(set(done) - told)}, which have no outcome"
    if is_told and (none := set(receipt["delivered"]) - set(done)):
        return f"no node had a job in {sorted(none)}"
    for language, jobs in done.items():
        # If no node was able to speak, there is another one without speech.
        count = Counter(speech for _, speech in jobs).most_common(1)[0][1]
        if count > 1:
            return f"nodes had {count} jobs in {language!r}"
    return ""
