"""Which part of a line tells its kind: a level, the class of an HTTP status, a program, a field of an object. Each as SQL for the pipeline, and in Python for the comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sparrow.demo.sqltext import field_sql, quoted

OTHER: Final = "other"
"""The kind of a line that has none."""
WORD, LEVEL, STATUS = "word", "level", "status"
"""What a kind is made of: a word as it stands, a level in capitals, an HTTP status as its class."""

_LEVELS: Final = "TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERR|SEVERE|CRITICAL|CRIT|ALERT|EMERG|FATAL"
_LEVEL: Final = f'(?<![A-Za-z_])({_LEVELS}|(?<=[\\[<=":])(?:{_LEVELS.lower()}))(?![A-Za-z_])'
_STATUS: Final = '^[^"]*"[^"]*" ([1-5][0-9][0-9]) '
_PROGRAM: Final = "^(?:<[0-9]+>)?[A-Z][a-z][a-z] [ 0-9][0-9] [0-9:]{8} [^ ]+ ([A-Za-z0-9_./-]+)"
_PART: Final = "^[^|]*[|]([A-Za-z0-9_.-]+)[|]"


@dataclass(frozen=True, slots=True)
class Kind:
    """Where the kind of a line stands.

    Args:
        pattern: its group is the kind; "" for the whole text.
        made_of: WORD, LEVEL or STATUS.
        field: of a JSON object; "" for the line itself.
    """

    pattern: str = ""
    made_of: str = WORD
    field: str = ""

    def read(self, text: str | None) -> str:
        """The kind in a text: of the line, or of the field."""
        word = text or ""
        if self.pattern:
            found = re.search(self.pattern, word)
            word = found[1] if found else ""
        if self.made_of == LEVEL:
            word = word.upper().replace("WARNING", "WARN")
        if self.made_of == STATUS and re.search("^[1-5][0-9][0-9]$", word):
            word = f"{word[0]}xx"
        return OTHER if word == "" or word[0] in "{[" else word

    def word_sql(self) -> str:
        """The word that the kind is made of, as an expression of Spark SQL."""
        text = field_sql(self.field)
        return f"regexp_extract({text}, {quoted(self.pattern)}, 1)" if self.pattern else text

    def sql(self) -> str:
        """The kind, as an expression over `word`."""
        made = "word"
        if self.made_of == LEVEL:
            made = "replace(upper(word), 'WARNING', 'WARN')"
        if self.made_of == STATUS:
            made = "CASE WHEN word RLIKE '^[1-5][0-9][0-9]$' THEN concat(left(word, 1), 'xx') ELSE word END"
        if not self.field:
            return f"if(word = '', '{OTHER}', {made})"
        return f"if(word IS NULL OR word = '' OR left(word, 1) IN ('{{', '['), '{OTHER}', {made})"


LEVELS: Final = Kind(_LEVEL, LEVEL)
KINDS: Final = (Kind(_STATUS, STATUS), LEVELS, Kind(_PROGRAM), Kind(_PART))
"""Of lines that are no JSON: those before others that fit the same lines."""
