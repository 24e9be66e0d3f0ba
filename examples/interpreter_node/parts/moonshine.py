"""Moonshine, which recognises English and Spanish, and Silero, which detects speech."""

from interpreter_node.parts.archive import Archive, Part

MOONSHINE = {"en": "moonshine-tiny-en", "es": "moonshine-base-es"}
TOKENIZER = "moonshine-tokenizer.json"
SILERO = "silero-vad.onnx"

CONSENT = "ACCEPT_MOONSHINE_COMMUNITY_LICENCE"

_MOONSHINE_JS = Archive(
    registry="npm",
    package="@moonshine-ai/moonshine-js",
    version="0.1.25",
    file="moonshine-ai-moonshine-js-0.1.25.tgz",
    size=68_645_461,
    sha256="0a34012e9cac66c898260383ac1ae9df39dfbaf90201f1f80396f1167734226b",
)
_LICENCE = "37fc5d9a86547a0dd64a07cff439ba2a6b79cc8f6555a05121fed32866591159"

ENGLISH = Part(
    what="Moonshine tiny: recognises English",
    archive=_MOONSHINE_JS,
    licence="MIT",
    size=28_180_947,
    files=(
        (
            "package/dist/model/tiny/quantized/encoder_model.onnx",
            f"{MOONSHINE['en']}/encoder_model.onnx",
            "c6fc4b7bc5af75c0591fd157a1f3829b533d18e9769a888fd95a62e470dd4f4a",
        ),
        (
            "package/dist/model/tiny/quantized/decoder_model_merged.onnx",
            f"{MOONSHINE['en']}/decoder_model_merged.onnx",
            "eed87831c3a6103534aae7d47a5d485025c659a1323901513961c39fe8a1a367",
        ),
        ("package/LICENSE", f"{MOONSHINE['en']}/LICENSE", _LICENCE),
    ),
)
SPANISH = Part(
    what="Moonshine base-es: recognises Spanish",
    archive=_MOONSHINE_JS,
    licence="Moonshine AI Community License",
    size=64_070_134,
    files=(
        (
            "package/dist/model/base-es-non-commercial/quantized/encoder_model.onnx",
            f"{MOONSHINE['es']}/encoder_model.onnx",
            "cb1715ea8a3610c89a94b677f24e4c623d68dc608e8d2d33d5ccf0a6f62a7d13",
        ),
        (
            "package/dist/model/base-es-non-commercial/quantized/decoder_model_merged.onnx",
            f"{MOONSHINE['es']}/decoder_model_merged.onnx",
            "46b0fc488df4de5ea424762129c2dfe193558baff059ae3b7639aef108648969",
        ),
        ("package/LICENSE", f"{MOONSHINE['es']}/LICENSE", _LICENCE),
    ),
    consent=CONSENT,
    terms=(
        "It is not free for all uses: research and non-commercial use are free; commercial use is"
        " for those with less than 1,000,000 USD of revenue a year, who must register with"
        " Moonshine AI; no output may be used to improve other foundation models; products must"
        " show 'Powered by Moonshine AI'. The whole text is the LICENSE in the npm package,"
        " section 2"
    ),
)
TOKENS = Part(
    what="Moonshine's tokenizer",
    archive=Archive(
        registry="pypi",
        package="useful-moonshine-onnx",
        version="20251121",
        file="useful_moonshine_onnx-20251121-py3-none-any.whl",
        size=729_305,
        sha256="b4189b0d7dc8064d567fd0b5d5ce78634be290b0a3a3274ab80ad11c46d531a2",
    ),
    licence="MIT",
    size=1_985_533,
    files=(
        (
            "moonshine_onnx/assets/tokenizer.json",
            TOKENIZER,
            "b68b995a58b3373db6c4f46864a9db50cd1333d086150ffa2c1096581ede9c10",
        ),
    ),
)
SPEECH_DETECTOR = Part(
    what="Silero VAD: detects speech",
    archive=Archive(
        registry="pypi",
        package="silero-vad",
        version="6.2.3",
        file="silero_vad-6.2.3-py3-none-any.whl",
        size=11_317_527,
        sha256="7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ),
    licence="MIT",
    size=1_246_165,
    files=(
        (
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            SILERO,
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        ),
    ),
)
