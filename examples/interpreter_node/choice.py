"""Loads the engines that the settings name."""

from dataclasses import dataclass

import numpy as np

from interpreter_node import parts
from interpreter_node.engines import (
    RATE,
    Detector,
    MissingPartError,
    Recognizer,
    Translator,
    Voice,
)
from interpreter_node.settings import Settings

LANGUAGES = ("en", "es")


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines, and the languages that the node can recognise."""

    recognizer: Recognizer
    translator: Translator
    voice: Voice | None
    detector: Detector
    heard: tuple[str, ...]

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """The language pairs that can be translated."""
        return tuple((src, tgt) for src in self.heard for tgt in LANGUAGES if src != tgt)

    @property
    def captions(self) -> tuple[tuple[str, str], ...]:
        """The languages that can be recognised and repaired without translation, as pairs."""
        return tuple((src, src) for src in self.heard)


def load(settings: Settings) -> Engines:
    """Load the engines, which takes seconds.

    Raises:
        MissingPartError: a part is missing; the message has the command that installs it.
    """
    heard = _heard(settings)
    engines = Engines(
        recognizer=_recognizer(settings, heard),
        translator=_translator(settings),
        voice=_voice(settings),
        detector=_detector(settings),
        heard=heard,
    )
    _warm_up(engines)
    return engines


def _warm_up(engines: Engines) -> None:
    """Run each engine once, because the first run takes longest."""
    for src, tgt in engines.directions:
        for _ in engines.recognizer.transcribe(np.zeros(RATE, np.float32), src):
            break
        engines.translator.translate("no", src, tgt)
        if engines.voice is not None:
            list(engines.voice.speak("no", tgt))


def _heard(settings: Settings) -> tuple[str, ...]:
    if settings.asr != "moonshine":
        return LANGUAGES
    found = tuple(each for each in LANGUAGES if (settings.models / parts.MOONSHINE[each]).is_dir())
    if not found:
        raise MissingPartError(f"no speech model is in {settings.models}", "make get-models")
    return found


# Each engine is imported when it is chosen, so the packages of the others are not needed.
def _recognizer(settings: Settings, heard: tuple[str, ...]) -> Recognizer:
    if settings.asr == "whisper":
        return _whisper(settings)
    if settings.asr == "moonshine":
        return _moonshine(settings, heard)
    from interpreter_node.recognizers.by_language import ByLanguage

    return ByLanguage({"en": _moonshine(settings, ("en",)), "es": _whisper(settings)})


def _moonshine(settings: Settings, heard: tuple[str, ...]) -> Recognizer:
    from interpreter_node.recognizers.moonshine import Moonshine

    folders = {each: settings.models / parts.MOONSHINE[each] for each in heard}
    return Moonshine(folders, settings.models / parts.TOKENIZER, threads=settings.threads)


def _whisper(settings: Settings) -> Recognizer:
    from interpreter_node.recognizers.whisper import Whisper

    if settings.asr_model is not None:
        return Whisper(settings.asr_model, threads=settings.threads)
    folder = settings.models / parts.WHISPER
    return Whisper(folder, threads=settings.threads, how="make get-models")


def _translator(settings: Settings) -> Translator:
    if settings.mt == "ctranslate2":
        from interpreter_node.translators.ctranslate import CTranslate

        if settings.mt_model is None:
            raise MissingPartError("ctranslate2 needs a model of your own", "--mt-model DIR")
        both = (("en", "es"), ("es", "en"))
        return CTranslate(settings.mt_model, both, threads=settings.threads)
    if settings.mt == "pivot":
        from interpreter_node.translators.pivot import Pivot

        return Pivot()
    from interpreter_node.translators.apertium import Apertium

    return Apertium()


def _voice(settings: Settings) -> Voice | None:
    if settings.tts == "kokoro":
        from interpreter_node.voices.kokoro import Kokoro

        return Kokoro(settings.models, threads=settings.threads)
    if settings.tts == "pico":
        from interpreter_node.voices.pico import Pico

        return Pico()
    if settings.tts == "espeak":
        from interpreter_node.voices.espeak import Espeak

        return Espeak()
    return None


def _detector(settings: Settings) -> Detector:
    from interpreter_node.detection import Loudness, Silero

    return Silero(settings.models / parts.SILERO) if settings.vad == "silero" else Loudness()
