"""Permissions and owner of the data directory."""

from __future__ import annotations

import os
import re
import stat

_OCTAL = re.compile(r"0?o?[0-7]{3}")
_OWNER_NEEDS = 0o700


def read_mode(given: object) -> int:
    """Return permissions of directories given as octal digits, such as "0700" or "750".

    Raises:
        ValueError: other text, or permissions with which the broker could not use its own
            directory.
    """
    if not isinstance(given, str) or not _OCTAL.fullmatch(given):
        raise ValueError('three octal digits in quotes, such as "0700" or "0750"')
    mode = int(given.removeprefix("0o"), 8)
    if mode & _OWNER_NEEDS != _OWNER_NEEDS:
        raise ValueError("the owner needs all rights: 07..")
    return mode


def directory_warnings(path: str, mode: int) -> list[str]:
    """Return what is unsafe about an existing data directory, each with what to do; empty if there
    is no directory yet.

    Args:
        mode: the permissions that it should have at most.
    """
    try:
        found = os.stat(path)
    except OSError:
        return []
    warnings = []
    if found.st_uid != os.geteuid():
        warnings.append(
            f"the data directory {path} belongs to user id {found.st_uid}, the broker runs as "
            f"{os.geteuid()}: its owner can"
            f" read and replace everything in it; change it with: chown -R {os.geteuid()} {path}"
        )
    present = stat.S_IMODE(found.st_mode) & 0o777
    if present & ~mode:
        warnings.append(
            f"the data directory {path} has mode {present:04o}, wider than data_mode {mode:04o}: "
            "other users of this machine can"
            f" look into it; narrow it with: chmod {mode:04o} {path}, or set data_mode"
        )
    return warnings
