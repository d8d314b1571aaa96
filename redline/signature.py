"""Which configs are ours: those that carry a signature by a key of this user's, which is kept outside of every run folder.

A config may name code to run. One that this user has written may go on doing so; whoever wants another's to do so has to say
it (`redline.learn.trust`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from redline.files import encode_json

SIGNATURE = "signature"
"""The entry of a config that holds its signature."""
KEY_BYTES = 32


def signed(config: dict[str, Any]) -> dict[str, Any]:
    """The config with this user's signature; without one where no key can be kept, as on a read-only home."""
    bare = unsigned(config)
    key = _key(make=True)
    return bare if key is None else {**bare, SIGNATURE: _signature(bare, key)}


def unsigned(config: dict[str, Any]) -> dict[str, Any]:
    """The config alone."""
    return {name: value for name, value in config.items() if name != SIGNATURE}


def is_signed(config: dict[str, Any]) -> bool:
    """Whether this user signed exactly this config."""
    given, key = config.get(SIGNATURE), _key(make=False)
    if key is None or not isinstance(given, str):
        return False
    return hmac.compare_digest(given.encode(errors="replace"), _signature(unsigned(config), key).encode())


def key_file() -> Path:
    """Where this user's key is kept."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # or else it would depend on where we are, and anybody could have put a key there
        folder = os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder, "redline", "key")


def why_no_key() -> str:
    """What keeps this user from knowing runs by a key that is there, in brackets; nothing where there is none to blame."""
    path = key_file()
    if not path.exists() or _key(make=False) is not None:
        return ""
    return f" (your key {path} cannot be used: it must be yours alone, as by chmod 600, and hold {KEY_BYTES} bytes)"


def _signature(config: dict[str, Any], key: bytes) -> str:
    plain = json.loads(encode_json(config))  # as it will be read again
    data = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The key of this user, made on first use; None where there is none, or one that somebody else could have put there."""
    path = key_file()
    with suppress(OSError):
        if make and not path.exists():
            _make_key(path)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would keep us waiting
            found = os.fstat(file.fileno())
            key = file.read(KEY_BYTES + 1)
        if found.st_uid == os.geteuid() and not found.st_mode & 0o077 and len(key) == KEY_BYTES:
            return key
    return None


def _make_key(path: Path) -> None:
    """Write a new key for this user's eyes only. Of several processes at once, one wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink()
