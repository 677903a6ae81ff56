"""Passwords and tokens: how they are made, and what is kept of them.

A token is 256 random bits, so a plain SHA-256 of it cannot be turned back. A password is chosen by a
person, so it is kept as scrypt (16 MB and about 50 ms a try).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from komainu.core.errors import InputError

_N, _R, _P = 1 << 14, 8, 1
MIN_PASSWORD = 10
MAX_PASSWORD = 256
_WORDS = "abcdefghijkmnpqrstuvwxyz23456789"
"""Without what looks alike on a screen: l and 1, o and 0."""


def new_token() -> str:
    """256 random bits, safe in headers and files."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def new_password() -> str:
    """Four groups of five letters and digits: 100 bits, and still typed by hand."""
    return "-".join("".join(secrets.choice(_WORDS) for _ in range(5)) for _ in range(4))


def checked_password(password: str) -> str:
    """A password that may be kept, or InputError."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise InputError(
            f"the password has {len(password)} characters: expected {MIN_PASSWORD} to {MAX_PASSWORD}"
        )
    return password


def password_hash(password: str) -> str:
    """What is kept of a password: `scrypt$N$r$p$salt$digest`."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _N, _R, _P)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(digest)}"


def password_fits(password: str, kept: str) -> bool:
    """Whether `password` is the one `kept` was made from."""
    _, n, r, p, salt, digest = kept.split("$")
    found = _scrypt(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password[:MAX_PASSWORD].encode("utf-8", "replace")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=64 << 20, dklen=32)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


NOBODY = password_hash(new_token())
"""What an unknown name is checked against, so that its answer takes as long as a known one's."""
