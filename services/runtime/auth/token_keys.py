"""Keys that sign and check tokens. Each key has one algorithm; a token cannot choose another."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jwt

# As long as the hash of HS256; a shorter secret would weaken it.
MIN_SECRET_BYTES = 32
_MIN_RSA_BITS = 2048
_KINDS = {"RSA": "RS256", "EC": "ES256"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `id` is the kid of a key from a key set; secrets have none."""

    algorithm: str
    key: Any
    id: str | None = None


def parse_secrets(data: bytes) -> tuple[Key, ...]:
    """Reads secrets, one per line; blank lines and lines that begin with # are ignored.

    Raises:
        ValueError: names the line, but not its content.
    """
    keys = []
    for number, line in enumerate(data.splitlines(), start=1):
        secret = line.strip()
        if not secret or secret.startswith(b"#"):
            continue
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"the secret in line {number} has {len(secret)} bytes; at least "
                f"{MIN_SECRET_BYTES} are needed ('lingua token secret FILE' makes one)"
            )
        try:
            # Raises if the line looks like a public key.
            keys.append(Key("HS256", jwt.get_algorithm_by_name("HS256").prepare_key(secret)))
        except jwt.InvalidKeyError:
            raise ValueError(f"line {number} is not a secret but a key of another kind") from None
    if not keys:
        raise ValueError("contains no secret ('lingua token secret FILE' makes a file with one)")
    return tuple(keys)


def parse_jwks(data: bytes) -> tuple[Key, ...]:
    """Reads the keys for RS256 and ES256 of a JSON Web Key Set; others are ignored.

    Raises:
        ValueError: it is not a key set, one of those keys is bad, or there is none.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('is not a JSON Web Key Set: expected {"keys": [...]}')
    keys = tuple(
        _public_key(at, entry) for at, entry in enumerate(entries) if _is_usable(at, entry)
    )
    if not keys:
        raise ValueError("has no key for RS256 or ES256 (kty RSA, or EC with crv P-256)")
    return keys


def candidates(keys: Iterable[Key], algorithm: object, key_id: object) -> list[Key]:
    """The keys that may have signed a token with this alg and kid."""
    fit = [key for key in keys if key.algorithm == algorithm]
    if key_id is None or algorithm == "HS256":
        return fit
    return [key for key in fit if key.id == key_id]


def _is_usable(at: int, entry: Any) -> bool:
    if not isinstance(entry, dict):
        raise ValueError(f"keys[{at}] is not a key")
    algorithm = _KINDS.get(str(entry.get("kty")))
    return (
        algorithm is not None
        and entry.get("alg", algorithm) == algorithm
        and entry.get("use", "sig") == "sig"
        and (algorithm != "ES256" or entry.get("crv") == "P-256")
    )


def _public_key(at: int, entry: dict[str, Any]) -> Key:
    if "d" in entry:
        raise ValueError(f"keys[{at}] is a private key; only the issuer of tokens may have it")
    key_id = entry.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise ValueError(f"keys[{at}]: kid must be text")
    algorithm = _KINDS[entry["kty"]]
    try:
        key = jwt.PyJWK(entry, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError(f"keys[{at}] is not a valid {entry['kty']} key") from None
    if algorithm == "RS256" and key.key_size < _MIN_RSA_BITS:
        raise ValueError(f"keys[{at}] has {key.key_size} bits; at least {_MIN_RSA_BITS} are needed")
    return Key(algorithm, key, key_id)
