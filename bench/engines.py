"""The engines of the interpreter node one by one, for `bench/translate.py --only engines`.

Each engine works in a process of its own, with one thread, so its memory can be told. Times are
CPU time: others may use the machine. Only the time of translators is the shortest of three runs,
because Apertium's programs work outside of the process.
"""

import importlib.util
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from interpreter_node import choice, parts
from interpreter_node.engines import RATE, Recognizer, Samples, Voice
from interpreter_node.hearing import resampled
from interpreter_node.settings import models_folder, read_settings
from interpreter_node.translators.apertium import Apertium
from interpreter_node.translators.pivot import Pivot
from interpreter_node.voices.espeak import Espeak
from interpreter_node.voices.kokoro import Kokoro
from interpreter_node.voices.pico import Pico
from word_errors import WordErrors, word_errors

SENTENCES = Path(__file__).with_name("sentences")
DIRECTIONS = (("en", "es"), ("es", "en"))
MODELS = models_folder(os.environ)

# A clip: what was said, and its samples.
Clips = list[tuple[str, Samples]]


def speakers() -> dict[str, Callable[[], Voice]]:
    """The voices that recognisers hear, the clearest last.

    Those of Kokoro are not the ones that nodes speak with. Pico is there only if it is installed.
    """
    others = {language: names[1] for language, names in parts.VOICES.items()}
    found: dict[str, Callable[[], Voice]] = {
        "espeak": Espeak,
        "kokoro": lambda: Kokoro(MODELS, others),
    }
    if importlib.util.find_spec("ttspico"):
        found["pico"] = Pico
    return found


def translator(name: str) -> Apertium | Pivot:
    """A translator that needs no model of one's own."""
    return Pivot() if name == "pivot" else Apertium()


def lines(src: str, tgt: str, count: int, folder: str = "") -> list[tuple[str, str]]:
    """Sentences and their reference translations."""
    text = (SENTENCES / folder / f"{src}-{tgt}.tsv").read_text("utf-8")
    pairs = [line.split("\t") for line in text.splitlines()[:count]]
    return [(said, reference) for said, reference in pairs]


def spoken(voice: Voice, texts: Sequence[str], language: str) -> Clips:
    """The texts as clips."""
    return [(text, samples(b"".join(voice.speak(text, language)), voice.rate)) for text in texts]


def samples(pcm: bytes, rate: int) -> Samples:
    """What a recogniser gets of this speech."""
    return resampled(np.frombuffer(pcm, "<i2").astype(np.float32) / 32768, rate)


def clips(speaker: str, texts: dict[str, list[str]]) -> dict[str, Clips]:
    """Everything that one voice says, by language."""
    voice = speakers()[speaker]()
    return {language: spoken(voice, each, language) for language, each in texts.items()}


def _heard(recognizer: Recognizer, said: Clips, language: str) -> tuple[WordErrors, list[float]]:
    errors, took = WordErrors(), []
    for text, audio in said:
        started = time.process_time()
        texts = list(recognizer.transcribe(audio, language))
        took.append(1000 * (time.process_time() - started))
        errors += word_errors(text, texts[-1] if texts else "")
    return errors, took


def _loaded(*flags: str) -> tuple[choice.Engines, dict[str, Any]]:
    """The engines, and the cost of loading them beyond that of Python and numpy."""
    before, started = _memory(), time.process_time()
    engines = choice.load(read_settings([*flags, "--vad", "loudness"]))
    return engines, {
        "load_s": time.process_time() - started,
        "memory_mb": _memory() - before,
    }


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def recognition(name: str, heard: dict[str, dict[str, Clips]]) -> dict[str, Any]:
    """One recogniser with all voices: word error rates, and time for each clip."""
    engines, report = _loaded("--asr", name, "--mt", "apertium", "--tts", "none")
    report["languages"] = {}
    for language in engines.heard:
        rates, took = {}, []
        for speaker, by_language in heard.items():
            errors, times = _heard(engines.recognizer, by_language[language], language)
            rates[speaker] = errors.rate
            took += times
        report["languages"][language] = {
            "word_error_rate": rates,
            "ms": statistics.median(took),
            "ms_p90": sorted(took)[int(len(took) * 0.9)],
        }
    return report


def translation(name: str, count: int) -> dict[str, Any]:
    """One translator with both sets of sentences: chrF, and time for each sentence."""
    before = _memory()
    engine = translator(name)
    report: dict[str, Any] = {"memory_mb": _memory() - before, "directions": {}}
    for src, tgt in DIRECTIONS:
        of = report["directions"][f"{src}-{tgt}"] = {}
        took = []
        for folder in ("", "held-out"):
            pairs = lines(src, tgt, count, folder)
            made = []
            for said, _ in pairs:
                best = float("inf")
                for _ in range(3):
                    started = time.perf_counter()
                    text = engine.translate(said, src, tgt)
                    best = min(best, 1000 * (time.perf_counter() - started))
                made.append(text)
                took.append(best)
            references = [[reference for _, reference in pairs]]
            of[folder or "sentences"] = sacrebleu.corpus_chrf(made, references).score
        of["ms"] = statistics.median(took)
    engine.close()
    return report


def speech(name: str, texts: dict[str, list[str]]) -> dict[str, Any]:
    """One voice: time for each second of speech; and what it said, for others to hear."""
    before, started = _memory(), time.process_time()
    voice: Voice = {"kokoro": lambda: Kokoro(MODELS), "pico": Pico, "espeak": Espeak}[name]()
    for language in texts:
        list(voice.speak("no", language))
    report: dict[str, Any] = {
        "load_s": time.process_time() - started,
        "memory_mb": _memory() - before,
        "languages": {},
        "said": {},
    }
    for language, each in texts.items():
        started = time.process_time()
        said = spoken(voice, each, language)
        took = time.process_time() - started
        report["languages"][language] = {
            "ms": 1000 * took / len(said),
            "ms_per_second": 1000 * took / sum(len(audio) / RATE for _, audio in said),
        }
        report["said"][language] = said
    return report


def heard_back(recognizer: str, said: dict[str, dict[str, Clips]]) -> dict[str, dict[str, float]]:
    """Word error rates of this recogniser for each voice, by language."""
    engines, _ = _loaded("--asr", recognizer, "--mt", "apertium", "--tts", "none")
    return {
        name: {
            language: _heard(engines.recognizer, of, language)[0].rate
            for language, of in by_language.items()
        }
        for name, by_language in said.items()
    }


def _alone(work: Callable[..., Any], *args: object) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *args).result()


def compare(count: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """All engines beside each other, with this many sentences."""
    texts = {src: [said for said, _ in lines(src, tgt, count)] for src, tgt in DIRECTIONS}
    progress("voices for the recognisers")
    heard = {name: _alone(clips, name, texts) for name in speakers()}
    report: dict[str, Any] = {"asr": {}, "mt": {}, "tts": {}}
    for name in ("moonshine", "whisper"):
        progress(f"recognition: {name}")
        report["asr"][name] = _alone(recognition, name, heard)
    for name in ("apertium", "pivot"):
        progress(f"translation: {name}")
        report["mt"][name] = _alone(translation, name, count)
    said = {}
    for name in speakers():
        progress(f"speech: {name}")
        made = _alone(speech, name, texts)
        said[name] = made.pop("said")
        report["tts"][name] = made
    progress("what was spoken, heard by Whisper")
    for name, rates in _alone(heard_back, "whisper", said).items():
        for language, rate in rates.items():
            report["tts"][name]["languages"][language]["word_error_rate"] = rate
    return report


def show(report: dict[str, Any]) -> None:
    """Print the tables of docs/interpreter.md."""
    voices = list(next(iter(report["asr"].values()))["languages"]["en"]["word_error_rate"])
    print(f"| recognises | language | word error rate: {', '.join(voices)} | CPU ms a clip | MB |")
    print("|---|---|---|---|---|")
    for name, of in report["asr"].items():
        for language, each in of["languages"].items():
            rates = ", ".join(f"{rate:.1%}" for rate in each["word_error_rate"].values())
            print(
                f"| {name} | {language} | {rates} | {each['ms']:.0f} / {each['ms_p90']:.0f}"
                f" | {of['memory_mb']:.0f} |"
            )
    print("\n| translates | direction | chrF | chrF, held out | ms |\n|---|---|---|---|---|")
    for name, of in report["mt"].items():
        for pair, each in of["directions"].items():
            chrf = f"{each['sentences']:.1f} | {each['held-out']:.1f}"
            print(f"| {name} | {pair} | {chrf} | {each['ms']:.0f} |")
    print("\n| speaks | language | word error rate, heard by Whisper | CPU ms a sentence |", end="")
    print(" a second of speech | MB |\n|---|---|---|---|---|---|")
    for name, of in report["tts"].items():
        for language, each in of["languages"].items():
            print(
                f"| {name} | {language} | {each['word_error_rate']:.1%} | {each['ms']:.0f}"
                f" | {each['ms_per_second']:.0f} | {of['memory_mb']:.0f} |"
            )
