"""Issues the tokens of these tests, with a secret and with the private keys of a key set.

Tokens are made by hand, and not by the code that is tested, so that they can be wrong in any way.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://id.example.com/"
AUDIENCE = "lingua-scheduler"
ROLES = ("client", "node", "service", "operator", "viewer")
# What a role has to be bound to.
BOUND: dict[str, dict[str, str]] = {"client": {"tenant": "acme"}, "node": {"node_id": "n1"}}

Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    """The token as metadata of a call."""
    return (("authorization", f"Bearer {token}"),)


class Issuer:
    """A secret and two private keys, and the files that servers read."""

    def __init__(self, folder: Path) -> None:
        self.secret = secrets.token_urlsafe(48)
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.secret_file = folder / "secrets"
        self.jwks_file = folder / "jwks.json"
        self.write_secrets(self.secret)
        self.write_jwks(rsa_1=self.rsa, ec_1=self.ec)

    def write_secrets(self, *lines: str) -> None:
        """Replaces the file of secrets."""
        _replace(self.secret_file, "\n".join(["# of the tests", "", *lines, ""]))

    def write_jwks(self, **keys: Any) -> None:
        """Replaces the key set by the public halves of these keys."""
        _replace(
            self.jwks_file, json.dumps({"keys": [jwk(key, name) for name, key in keys.items()]})
        )

    def claims(self, role: str = "operator", **claims: Any) -> dict[str, Any]:
        """Valid claims, with changes; None leaves a claim out."""
        now = int(time.time())
        held = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": f"a {role} of the tests",
            "iat": now,
            "exp": now + 600,
            "role": role,
            **BOUND.get(role, {}),
            **claims,
        }
        return {name: value for name, value in held.items() if value is not None}

    def token(self, role: str = "operator", **claims: Any) -> str:
        """A token that the secret has signed."""
        return self.signed(self.claims(role, **claims), self.secret)

    def metadata(self, role: str = "operator", **claims: Any) -> Metadata:
        """The same as metadata of a call."""
        return bearer(self.token(role, **claims))

    def by_rsa(self, claims: dict[str, Any], kid: str | None = "rsa_1") -> str:
        """A token of RS256."""
        return jwt.encode(claims, self.rsa, "RS256", headers={"kid": kid} if kid else None)

    def by_ec(self, claims: dict[str, Any], kid: str | None = "ec_1") -> str:
        """A token of ES256."""
        return jwt.encode(claims, self.ec, "ES256", headers={"kid": kid} if kid else None)

    def rsa_public(self) -> bytes:
        """The public half of the RSA key."""
        return self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @staticmethod
    def signed(claims: object, secret: str | bytes, **header: Any) -> str:
        """A token of HS256 by hand: nothing is checked, and the header may say anything."""
        parts = ({"alg": "HS256", "typ": "JWT", **header}, claims)
        signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        key = secret.encode() if isinstance(secret, str) else secret
        return f"{signed}.{_base64(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def jwk(key: Any, kid: str) -> dict[str, Any]:
    """The public half of a key, as a key set writes it."""
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    written: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(
        key.public_key(), as_dict=True
    )
    return {**written, "kid": kid, "use": "sig"}


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
