"""Secrets read from files: a pipeline's file names the files and never holds secrets."""

from __future__ import annotations

from sparrow.base.errors import InvalidConfig


def read_secret_file(path: str) -> str:
    """Return the first line of a file.

    Raises:
        InvalidConfig: the file cannot be read, or its first line is empty.
    """
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InvalidConfig(f"the file of a secret, {path}, cannot be read: {reason}") from None
    if not secret:
        raise InvalidConfig(f"the file of a secret, {path}, has nothing in its first line")
    return secret
