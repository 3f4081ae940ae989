"""Exit codes of commands, and errors as sentences on stderr.

The codes follow sysexits.h where it has one:

      0  done
      1  failed: something was not published, a check found something, an unexpected error
      2  the command line is wrong
     65  the data is wrong: a corrupt segment, a malformed NDJSON line
     66  a file to read is missing, is a directory, or may not be read
     69  the broker cannot be reached, or cannot do it now (full disk, draining, overloaded)
     70  a bug in Sparrow; SPARROW_DEBUG=1 shows the traceback
     73  the data directory cannot be used: in use, unreadable, of a newer format
     77  not authenticated or not allowed
     78  the configuration is wrong
    129  the terminal went away (SIGHUP)
    130  stopped by Ctrl-C
    141  the reader of the output went away (SIGPIPE)
    143  stopped by SIGTERM
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sparrow.base import errors

if TYPE_CHECKING:
    from collections.abc import Callable

OK = 0
FAILED = 1
USAGE = 2
BAD_DATA = 65
NO_INPUT = 66
UNAVAILABLE = 69
BUG = 70
BAD_DIRECTORY = 73
NOT_ALLOWED = 77
BAD_CONFIG = 78
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143

DEBUG_VARIABLE = "SPARROW_DEBUG"

_CODES: tuple[tuple[type[errors.SparrowError], int], ...] = (
    (errors.InvalidArgument, USAGE),
    (errors.InvalidTopicName, USAGE),
    (errors.InvalidConfig, BAD_CONFIG),
    (errors.CorruptBatch, BAD_DATA),
    (errors.InvalidRecord, BAD_DATA),
    (errors.DataDirectoryError, BAD_DIRECTORY),
    (errors.Refused, NOT_ALLOWED),
    (errors.Unavailable, UNAVAILABLE),
    (errors.ProtocolError, UNAVAILABLE),
)


def exit_code_of(error: errors.SparrowError) -> int:
    """Return the exit code for an error that ended a command."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def say(text: str) -> None:
    """Print one line (or more) for people on stderr."""
    print(f"sparrow: {text}", file=sys.stderr, flush=True)


def run_reporting(command: Callable[[], int]) -> int:
    """Run a command; errors become a sentence and an exit code. With SPARROW_DEBUG=1 the traceback
    is also printed.
    """
    try:
        code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return reader_gone()
    except Exception as error:  # noqa: BLE001 - the last one to see it
        return _report(error)
    return code


def _report(error: Exception) -> int:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        import traceback

        traceback.print_exception(error)
    text, code = _sentence(error)
    say(text)
    return code


def _sentence(error: Exception) -> tuple[str, int]:
    match error:
        case errors.SparrowError():
            return error.text, exit_code_of(error)
        case FileNotFoundError():
            return f"{error.filename}: no such file", NO_INPUT
        case IsADirectoryError() | PermissionError() if error.filename:
            return f"{error.filename}: {error.strerror}", NO_INPUT
        case OSError():
            return f"{error.filename or 'input or output'}: {error.strerror or error}", FAILED
    return f"unexpected {type(error).__name__}: {error}; this is a bug, {DEBUG_VARIABLE}=1 shows where", BUG


def reader_gone() -> int:
    """End quietly when the reader of the output has gone."""
    # Python flushes stdout at exit; into a closed pipe that would print a second error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
