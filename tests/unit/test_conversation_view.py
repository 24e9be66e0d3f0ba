"""What `make run` shows: its columns, its colours, and where it has none."""

import importlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from lingua_scheduler import sdk
from lingua_scheduler.sdk import Reason, ResultKind

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """A module of the examples, which are programs and no package."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def shown(width: int = 80, **console: Any) -> tuple[Any, io.StringIO]:
    file = io.StringIO()
    options: dict[str, Any] = {"highlight": False, "legacy_windows": False, **console}
    return example("conversation_view").ConversationView(
        Console(file=file, width=width, **options)
    ), file


def result_of(src: str, source: str, translated: str, **fields: Any) -> sdk.Result:
    tgt = {"zh": "en", "en": "zh"}[src]
    texts = sdk.Texts(source=source, translated=translated)
    timings = sdk.ResultTimings(hangover_ms=200, dispatch_ms=10, node_ms=120, deliver_ms=1)
    values: dict[str, Any] = {
        "index": 0,
        "kind": ResultKind.TRANSLATED,
        "node_id": "amber",
        "attempts": 1,
        "texts": texts,
        "timings": timings,
    }
    return sdk.Result(src=src, tgt=tgt, **{**values, **fields})


def test_each_speaker_has_a_column_and_an_arrow_points_to_the_listener() -> None:
    view, file = shown()
    view.header()
    view.utterance(result_of("zh", "你好。", "Hello."), Reason.IS_FINAL)
    view.utterance(result_of("en", "Goodbye!", "再见！"), Reason.IS_FINAL)
    _, head, first, second = file.getvalue().splitlines()
    assert head.split() == ["NODE", "ANA", "speaks", "Chinese", "BEN", "speaks", "English", "DELAY"]
    assert first.split() == ["amber", "你好。", "→", "Hello.", "0.33s"]
    assert second.split() == ["amber", "再见！", "←", "Goodbye!", "0.33s"]
    assert {cell_len(line) for line in (head, first, second)} == {79}


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wrapped_however_long_a_sentence_is(width: int) -> None:
    view, file = shown(width)
    view.header()
    view.utterance(result_of("zh", "很" * 60, "very " * 60), Reason.IS_FINAL)
    view.note("long " * 60)
    lines = file.getvalue().splitlines()
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= width


def test_every_sentence_of_the_conversation_fits_in_80_columns() -> None:
    view, file = shown()
    for phrase in example("phrases").PHRASES:
        for src in ("zh", "en"):
            said, heard = phrase.texts[src], phrase.texts[{"zh": "en", "en": "zh"}[src]]
            view.utterance(result_of(src, said, heard), Reason.IS_FINAL)
    assert "…" not in file.getvalue()


def test_what_is_held_shows_what_was_understood_so_far_and_why_it_was_cut() -> None:
    view, file = shown()
    so_far = sdk.PartialText(index=0, src="zh", tgt="en", texts=sdk.Texts(source="你…"))
    view.partial(so_far)
    view.utterance(result_of("zh", "", "", kind=ResultKind.HELD), Reason.TIMEOUT)
    assert "你…" in file.getvalue()
    assert "(cut: a pause; audio held)" in file.getvalue()


def test_what_is_missing_is_named() -> None:
    view, file = shown()
    view.utterance(sdk.Missing(index=0, src="zh", tgt="en", reason="JOB_TIMEOUT"), Reason.IS_FINAL)
    assert "MISSING: JOB_TIMEOUT" in file.getvalue()


def test_nodes_have_colours_on_a_terminal() -> None:
    view, file = shown(force_terminal=True, color_system="standard", no_color=False)
    view.utterance(result_of("zh", "你好。", "Hello."), Reason.IS_FINAL)
    view.utterance(result_of("zh", "你好。", "Hello.", node_id="birch"), Reason.IS_FINAL)
    assert "\x1b[33mamber" in file.getvalue()
    assert "\x1b[32mbirch" in file.getvalue()


def test_no_color_leaves_no_codes_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", file := io.StringIO())
    module = example("conversation_view")
    view = module.ConversationView(module.terminal())
    view.utterance(result_of("zh", "你好。", "Hello."), Reason.IS_FINAL)
    assert "Hello." in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_a_node_that_heard_half_of_a_tone_knows_half_of_its_sentence() -> None:
    phrase = example("phrases").Phrase(200, 2.0, {"en": "one two"})
    assert phrase.in_language("en", 2.0) == "one two"
    assert phrase.in_language("en", 1.1) == "one…"
    assert phrase.in_language("zh", 2.0) == ""
