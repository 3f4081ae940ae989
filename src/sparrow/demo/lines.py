"""A log, or a file of JSON lines, as messages: one for each line, with the file's name and the line's number as its id.

The file is read anew for every pass, so nothing grows with its length; what is written to it meanwhile plays no part. Lines are UTF-8 in the broker, whatever the file has. What cannot be a message (empty lines, and those that no broker
takes) is left out and counted.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import IO, Any, AnyStr, Final, cast

from sparrow.base.errors import InvalidArgument
from sparrow.demo.lineshape import Shape, read_fields, shape_of
from sparrow.demo.message import Message

MAX_LINE_BYTES: Final = 1_000_000
"""A broker takes messages of 1 MiB, headers and all, where it was not told otherwise."""
_LOOKED_AT: Final = 2000
"""So many lines tell what the others look like,"""
_LOOKED_AT_BYTES: Final = 2 << 20
"""or so many bytes of them."""
_BUFFER_BYTES: Final = 256 << 10
_SNIFFED_BYTES: Final = 64 << 10
_GZIP: Final = b"\x1f\x8b"
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_MOST_NULS: Final = 0.2
"""Of bytes that are UTF-16 without a mark, more are 0."""
_TURNED: Final = 10_000
"""Lines that know their parents are read by so many, and handed out the last one first."""


@dataclass(slots=True)
class Tally:
    """What a pass over the file found."""

    lines: int = 0
    empty: int = 0
    too_long: int = 0
    recoded: int = 0
    """Not UTF-8; read as Windows-1252."""
    no_json: int = 0
    """In a file of JSON lines, those that are no object."""
    parents: int = 0
    parents_left_out: int = 0
    """Not the id of a line before."""
    first: datetime | None = None
    last: datetime | None = None
    timed: int = 0


class LogFile:
    """A file as an input of the demonstration, see `message.Source`."""

    kind = "lines"

    def __init__(self, path: str, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """
        Raises:
            InvalidArgument: there is no such file, it cannot be read, or is not made of lines.
        """
        self.path = path
        # Names of files are bytes; those of messages are text.
        self.name = os.path.basename(path).encode(errors="replace").decode()
        self._max_line_bytes = max_line_bytes
        with _told(path):
            self._bytes, modified = _looked_at(path)
            with _opened(path, self._bytes) as file:
                self.encoding = _encoding(file.read(_SNIFFED_BYTES), path)
        sample = _first((line for _, line in self.lines(Tally())), _LOOKED_AT)
        if not sample:
            raise InvalidArgument(f"{path} has no lines with text")
        self.is_ndjson = sum(bool(read_fields(line)) for line in sample) * 2 > len(sample)
        self.shape: Shape = shape_of(sample, is_json=self.is_ndjson, year=modified.year)
        self.is_parented = self.is_ndjson and _has_parents(sample)
        self.title = f"{'objects' if self.is_ndjson else 'lines'} of {self.name}"

    @cached_property
    def tally(self) -> Tally:
        """Of a pass over all of it."""
        tally = Tally()
        for _, line in self.lines(tally):
            tally.lines += 1
            _, time = self.shape.read(line)
            if time is not None:
                tally.timed += 1
                tally.first = time if tally.first is None else min(tally.first, time)
                tally.last = time if tally.last is None else max(tally.last, time)
            if self.is_ndjson and not line.lstrip().startswith("{"):
                tally.no_json += 1
        if self.is_parented:
            for _ in self._with_parents(tally):
                pass
        return tally

    @property
    def note(self) -> str:
        """What is to be said of the file."""
        found = self.tally
        told = {
            "empty": found.empty,
            f"longer than {self._max_line_bytes:,} bytes": found.too_long,
        }
        left_out = [f"{count:,} {what}" for what, count in told.items() if count]
        parts = [f"left out: {', '.join(left_out)}"] if left_out else []
        if found.recoded:
            parts.append(f"{found.recoded:,} lines are not UTF-8 and were read as Windows-1252")
        if found.no_json:
            parts.append(f"{found.no_json:,} lines are no JSON objects and count as text")
        if found.parents_left_out:
            parts.append(
                f"{found.parents_left_out:,} parents are not the id of a line before, and do not count"
            )
        return "; ".join(parts)

    def count(self) -> int:
        """How many messages there are."""
        return self.tally.lines

    def messages(self) -> Iterator[Message]:
        """The lines. Those that know their parents come in blocks, the last of each first."""
        if not self.is_parented:
            for number, line in self.lines(Tally()):
                yield Message(f"{self.name}:{number}", line.encode())
            return
        found = self._with_parents(Tally())
        while block := list(islice(found, _TURNED)):
            yield from reversed(block)

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Every id with its parents; these come before their children, as they do in the file."""
        if self.is_parented:
            for message in self._with_parents(Tally()):
                yield message.id, message.parents
            return
        for number, _ in self.lines(Tally()):
            yield f"{self.name}:{number}", ()

    def lines(self, tally: Tally) -> Iterator[tuple[int, str]]:
        """The lines that become messages, with their numbers; the tally counts those that do not."""
        with _told(self.path), _opened(self.path, self._bytes) as file:
            lines = _decoded(file, self.encoding, self._max_line_bytes, tally)
            for number, line in enumerate(lines, 1):
                if line is None:
                    tally.too_long += 1
                elif line.strip():
                    yield number, line
                else:
                    tally.empty += 1

    def _with_parents(self, tally: Tally) -> Iterator[Message]:
        """Messages by the ids that the lines give themselves. An id that comes again is not one: the line is called by its number."""
        seen: set[str] = set()
        for number, line in self.lines(Tally()):
            own, named = _family(line)
            identity = own if own and own not in seen else f"{self.name}:{number}"
            parents = tuple(dict.fromkeys(each for each in named if each in seen))
            tally.parents += len(parents)
            tally.parents_left_out += len(set(named) - seen)
            seen.add(identity)
            yield Message(identity, line.encode(), None, parents)


def _family(line: str) -> tuple[str, Sequence[str]]:
    """The id and the parents of an object."""
    import json

    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "", ()
    if not isinstance(found, dict):
        return "", ()
    own, parents = found.get("id"), found.get("parents")
    named = parents if isinstance(parents, list) else []
    return _id(own), [text for text in map(_id, named) if text]


def _id(value: object) -> str:
    """Texts and whole numbers are ids."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value)


def _has_parents(sample: Sequence[str]) -> bool:
    families = [_family(line) for line in sample]
    ids = {own for own, _ in families if own}
    return len(ids) * 2 > len(sample) and any(set(parents) & ids for _, parents in families)


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────


def _looked_at(path: str) -> tuple[int, datetime]:
    """How long a file is, and when it was written."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArgument(
            f"{path} is no file that can be read several times; give a plain file, perhaps a copy"
        )
    return found.st_size, datetime.fromtimestamp(found.st_mtime, UTC)


def _encoding(start: bytes, path: str) -> str:
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    nuls = [start[parity::2].count(0) / max(1, len(start) // 2) for parity in (0, 1)]
    if max(nuls) > _MOST_NULS and min(nuls) < max(nuls) / 10:
        return "utf-16-be" if nuls[0] > nuls[1] else "utf-16-le"
    if 0 in start:
        raise InvalidArgument(
            f"{path} is no text: it has bytes that are 0; give a log or a file of JSON lines"
        )
    return ""


class _Beginning(io.RawIOBase):
    """The first bytes of a file, so many."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


@contextmanager
def _opened(path: str, size: int) -> Iterator[IO[bytes]]:
    with open(path, "rb") as file:
        is_packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        with io.BufferedReader(_Beginning(file, size), _BUFFER_BYTES) as beginning:
            if not is_packed:
                yield beginning
                return
            with gzip.open(beginning) as unpacked:
                yield cast("IO[bytes]", unpacked)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What goes wrong in reading, in a sentence."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidArgument(f"{path} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror or error}") from None


def _decoded(file: IO[bytes], encoding: str, most: int, tally: Tally) -> Iterator[str | None]:
    """The lines without their ends; None for one that is too long."""
    if not encoding:
        for raw in _cut(file.readline, b"\r\n", most):
            text = _as_text(raw, tally) if raw is not None else None
            yield text if text is None or len(text) * 4 <= most else _if_short(text, most)
        return
    texts = io.TextIOWrapper(file, encoding, errors="replace", newline="\n")
    try:
        for text in _cut(texts.readline, "\r\n", most):
            yield _if_short(text, most) if text is not None else None
    finally:
        texts.detach()


def _cut(readline: Callable[[int], AnyStr], ends: AnyStr, most: int) -> Iterator[AnyStr | None]:
    """Lines without their ends, none held that is longer than `most`: None stands for it."""
    end, longest = ends[-1:], most + len(ends)
    while line := readline(longest):
        if line.endswith(end) or len(line) < longest:
            text = line.rstrip(ends)
            yield text if len(text) <= most else None
            continue
        while (rest := readline(most)) and not rest.endswith(end):
            pass
        yield None


def _if_short(text: str, most: int) -> str | None:
    """A line, if it is not longer than a message may be."""
    return text if len(text.encode()) <= most else None


def _as_text(line: bytes, tally: Tally) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        tally.recoded += 1
        return line.decode("cp1252", errors="replace")


def _first(lines: Iterator[str], most: int) -> list[str]:
    """So many lines, or fewer where they are long."""
    found: list[str] = []
    size = 0
    for line in islice(lines, most):
        found.append(line)
        size += len(line)
        if size > _LOOKED_AT_BYTES:
            break
    return found
