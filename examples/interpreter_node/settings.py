"""The node's settings: flags, or environment variables such as INTERPRETER_ASR."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingua_scheduler.sdk import Tls

PREFIX = "INTERPRETER_"
# Each name with a plus is two engines: Moonshine for English, and Whisper for Spanish. The first
# is the default (decision 75).
ASR = ("moonshine+whisper", "whisper", "moonshine")
MT = ("pivot", "apertium", "ctranslate2")
TTS = ("kokoro", "pico", "espeak", "none")
VAD = ("silero", "loudness")
# Variables that all parts of this project use.
_ACCESS = (
    ("--token-file", "LINGUA_TOKEN_FILE", "says who this node is"),
    ("--ca", "LINGUA_TLS_CA_FILE", "the dispatchers' authority; none: no TLS"),
    ("--cert", "LINGUA_TLS_CLIENT_CERT_FILE", "this node's own certificate"),
    ("--key", "LINGUA_TLS_CLIENT_KEY_FILE", "its key"),
    ("--server-name", "LINGUA_TLS_SERVER_NAME", "in the dispatchers' certificate"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that `python -m interpreter_node --help` lists."""

    node_id: str
    dispatcher: str
    slots: int
    threads: int
    asr: str
    asr_model: Path | None
    mt: str
    mt_model: Path | None
    tts: str
    vad: str
    models: Path
    join: bool
    token_file: Path | None
    tls: Tls | None
    until_eof: bool


def models_folder(environ: Mapping[str, str]) -> Path:
    """The folder of downloaded models: outside the project, shared by all nodes of a user."""
    if chosen := environ.get(f"{PREFIX}MODELS"):
        return Path(chosen).expanduser()
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "lingua-scheduler" / "interpreter"


def read_settings(args: Sequence[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Parse the settings; exits with a message and code 2 if one is invalid."""
    made = parser(os.environ if environ is None else environ)
    chosen = made.parse_args(args)
    try:
        tls = _tls(chosen)
    except ValueError as error:
        made.error(str(error))
    return Settings(
        node_id=chosen.id,
        dispatcher=chosen.dispatcher,
        slots=chosen.slots,
        threads=chosen.threads,
        asr=chosen.asr,
        asr_model=chosen.asr_model,
        mt=chosen.mt,
        mt_model=chosen.mt_model,
        tts=chosen.tts,
        vad=chosen.vad,
        models=chosen.models,
        join=chosen.join == "on",
        token_file=chosen.token_file,
        tls=tls,
        until_eof=chosen.until_eof,
    )


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser; the default of a flag is its variable, if that is set."""
    made = argparse.ArgumentParser(
        prog="python -m interpreter_node",
        description="A node that interprets between English and Spanish.",
        epilog=f"Each flag can be a variable, too: --asr-model is {PREFIX}ASR_MODEL.",
    )

    def add(flag: str, default: object, **more: object) -> None:
        value = environ.get(PREFIX + flag.strip("-").replace("-", "_").upper(), default)
        if choices := more.get("choices"):
            # argparse does not check defaults.
            if value not in choices:  # type: ignore[operator]
                made.error(f"{PREFIX}{flag.strip('-').upper()}: {value!r} is none of {choices}")
            more["help"] = f"{more['help']} (by default {value})"
        made.add_argument(flag, default=value, **more)  # type: ignore[arg-type]

    add("--id", "interpreter-1", metavar="ID", help="of this node; no other has it")
    add("--dispatcher", "127.0.0.1:7720", metavar="ADDRESS[,ADDRESS...]", help="where to connect")
    add("--slots", 1, type=_at_least_one, metavar="N", help="jobs at the same time")
    add("--threads", 1, type=_at_least_one, metavar="N", help="of the CPU, for one job")
    add("--asr", ASR[0], choices=ASR, help="who recognises")
    add("--asr-model", None, type=_path, metavar="DIR", help="of whisper: another model than base")
    add("--mt", MT[0], choices=MT, help="who translates")
    add("--mt-model", None, type=_path, metavar="DIR", help="of ctranslate2: has en-es/, es-en/")
    add("--tts", TTS[0], choices=TTS, help="who speaks")
    add("--vad", VAD[0], choices=VAD, help="who says whether there is speech")
    add("--models", str(models_folder(environ)), type=_path, metavar="DIR", help="fetched models")
    add("--join", "on", choices=("on", "off"), help="hold and join unfinished audio")
    for flag, variable, what in _ACCESS:
        made.add_argument(
            flag,
            metavar="FILE" if variable.endswith("FILE") else "NAME",
            type=_path if variable.endswith("FILE") else str,
            default=environ.get(variable) or None,
            help=f"{what} ({variable})",
        )
    made.add_argument("--until-eof", action="store_true", help="end when stdin ends")
    return made


def _tls(chosen: argparse.Namespace) -> Tls | None:
    if not chosen.ca:
        return None
    name = chosen.server_name or ""
    return Tls(ca=chosen.ca, cert=chosen.cert, key=chosen.key, server_name=name)


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number over 0")
    return int(text)
