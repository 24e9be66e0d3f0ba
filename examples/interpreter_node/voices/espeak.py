"""Speech by eSpeak NG (`espeakng-loader`): robotic, but available as a wheel everywhere.

The library has one state for the whole process, so all voices share one lock.
"""

import ctypes
import threading
from collections.abc import Iterator

from interpreter_node.engines import installed
from interpreter_node.sentences import split_sentences

VOICES = {"en": "en-us", "es": "es"}
_SYNCHRONOUS = 2
_UTF8 = 1
_ON_AUDIO = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)
_lock = threading.Lock()


class Espeak:
    """A Voice. Raises MissingPartError if the package is missing."""

    def __init__(self) -> None:
        package = installed("espeakng_loader", "espeakng-loader", "speaks")
        self._library = ctypes.CDLL(package.get_library_path())
        with _lock:
            self.rate: int = self._library.espeak_Initialize(
                _SYNCHRONOUS, 0, package.get_data_path().encode(), 0
            )
        if self.rate <= 0:
            raise RuntimeError("eSpeak NG cannot be initialized")

    def speak(self, text: str, language: str) -> Iterator[bytes]:
        """See Voice."""
        for sentence in split_sentences(text):
            yield self._sentence(sentence, language)

    def _sentence(self, text: str, language: str) -> bytes:
        heard = bytearray()

        def take(samples: "ctypes._Pointer[ctypes.c_short]", count: int, _events: object) -> int:
            if samples and count > 0:
                heard.extend(ctypes.string_at(samples, count * 2))
            return 0

        callback = _ON_AUDIO(take)
        encoded = text.encode()
        with _lock:
            self._library.espeak_SetSynthCallback(callback)
            self._library.espeak_SetVoiceByName(VOICES[language].encode())
            self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _UTF8, None, None)
        return bytes(heard)
