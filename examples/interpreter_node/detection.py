"""Speech detection by a small neural network, or by loudness alone."""

from pathlib import Path

import numpy as np

from interpreter_node.engines import FRAME, MissingPartError, Samples, installed

# A probability above this is speech.
SURE = 0.5
# For detection by loudness: speech is louder than this, about -40 dB,
LOUD = 0.01
# and louder than the quietest tenth of the audio by this factor.
ABOVE_NOISE = 3.0
# Before each frame the network gets the end of the previous one.
_CONTEXT = 64
_STATE = (1, 1, 128)
# Frames per batch, so that long audio needs no more memory than short audio.
_BLOCK = 512


class Silero:
    """A Detector: Silero's network in the form that takes many frames at once.

    Raises:
        MissingPartError: the model or the runtime is missing.
    """

    def __init__(self, model: Path) -> None:
        runtime = installed("onnxruntime", "onnxruntime", "runs the speech models")
        if not model.is_file():
            raise MissingPartError(f"the model file {model} is not there", "make get-models")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = runtime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )

    def judge(self, samples: Samples) -> list[bool]:
        """See Detector."""
        frames = _framed(samples)
        before = np.zeros((len(frames), _CONTEXT), np.float32)
        before[1:] = frames[:-1, -_CONTEXT:]
        seen = np.concatenate((before, frames), axis=1)
        h = c = np.zeros(_STATE, np.float32)
        found: list[bool] = []
        for at in range(0, len(seen), _BLOCK):
            sure, h, c = self._session.run(None, {"input": seen[at : at + _BLOCK], "h": h, "c": c})
            found += (np.asarray(sure) > SURE).tolist()
        return found


class Loudness:
    """A Detector without a model: steady noise counts as silence, music as speech."""

    def judge(self, samples: Samples) -> list[bool]:
        """See Detector."""
        frames = _framed(samples)
        if not len(frames):
            return []
        loud = np.sqrt(np.mean(frames * frames, axis=1))
        # Speech without any pause must not count as noise.
        noise = min(float(np.quantile(loud, 0.1)), LOUD)
        return [bool(each) for each in loud > max(LOUD, noise * ABOVE_NOISE)]


def _framed(samples: Samples) -> Samples:
    padded = np.pad(samples, (0, -len(samples) % FRAME))
    return padded.reshape(-1, FRAME)
