"""Translation by CTranslate2, with your own model folders."""

from pathlib import Path

from interpreter_node.engines import MissingPartError, installed
from interpreter_node.sentences import split_sentences


class CTranslate:
    """A Translator.

    Args:
        folder: holds a folder for each direction, such as `en-es`: a model in CTranslate2's format
            with the SentencePiece models `source.spm` and `target.spm`, as OPUS-MT has them.
        threads: CPU threads.

    Raises:
        MissingPartError: a folder or a package is missing.
    """

    def __init__(
        self, folder: Path, directions: tuple[tuple[str, str], ...], *, threads: int = 1
    ) -> None:
        self._models = {}
        for src, tgt in directions:
            home = folder / f"{src}-{tgt}"
            for name in ("model.bin", "source.spm", "target.spm"):
                if not (home / name).is_file():
                    raise MissingPartError(
                        f"--mt-model: {home / name} is not there",
                        f"ct2-transformers-converter --model Helsinki-NLP/opus-mt-{src}-{tgt}"
                        f" --copy_files source.spm target.spm --output_dir {home}",
                    )
        engine = installed("ctranslate2", "ctranslate2", "runs translation models")
        pieces = installed("sentencepiece", "sentencepiece", "cuts words for them")
        for src, tgt in directions:
            home = folder / f"{src}-{tgt}"
            source, target = (
                pieces.SentencePieceProcessor(model_file=str(home / name))
                for name in ("source.spm", "target.spm")
            )
            translator = engine.Translator(str(home), device="auto", intra_threads=threads)
            self._models[src, tgt] = (translator, source, target)

    def translate(self, text: str, src: str, tgt: str) -> str:
        """See Translator."""
        translator, source, target = self._models[src, tgt]
        sentences = [[*source.encode(each, out_type=str), "</s>"] for each in split_sentences(text)]
        results = translator.translate_batch(sentences, beam_size=2)
        return " ".join(target.decode(each.hypotheses[0]) for each in results)
