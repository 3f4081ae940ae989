"""The source keeps one vocabulary: one word for one thing, modules and classes named after what
they hold, docstrings that say what a thing is or does.

The texts of files are searched and not their syntax trees, so that the tests take a fraction of a
second.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"

INSTEAD: Final = {
    "anew": "again",
    "door": "frontend; listener in texts for users",
    "doomed": "dead letter",
    "deadletter": "dead letter",
    "fact": "entry",
    "intake": "FetchBuffer",
    "lane": "SubscriberState",
    "outbox": "SendBudget, Reservation",
    "parcel": "MoveBatch",
    "pump": "connection",
    "roof": "GroupRegistry",
    "salting": "password_hash",
    "weigh": "estimate",
    "weighed": "estimated",
    "whoever": "the subject by its name",
}
"""Words that no identifier, docstring, comment or text has, and the word to use."""

NO_CLASSES: Final = (
    "Link",
    "Lane",
    "Place",
    "Turns",
    "Held",
    "Mark",
    "Parcel",
    "Fact",
    "Facts",
    "Verbs",
    "Family",
    "Outgoing",
)
"""Names that say nothing of what a class is, alone or as the last word of a name."""

ALLOWED_WORDS: Final = {
    "src/sparrow/broker/metrics/table.py": {"door"},  # the label of metrics
    "tests/metrics/": {"door"},
    "tests/damage/test_agreement.py": {"door"},
    "tests/security/test_admission.py": {"door"},
    "docs/metrics.md": {"door"},
    "src/sparrow/frontends/http/openapi.py": {"lane"},  # schemas of the OpenAPI document
    "src/sparrow/frontends/admin/operations.py": {"weigh"},  # a verb of the native protocol
    "src/sparrow/spark/source/topics.py": {"weigh"},
    "src/sparrow/spark/wire/session.py": {"weigh"},
    "tests/acls/test_acl_native.py": {"weigh"},
    "tests/audit/": {"weigh"},
    "tests/broker/reading/test_slow_store.py": {"weigh"},
    "tests/native_fetch/test_size_estimates.py": {"weigh"},
    "tests/spark/wire/test_fetches.py": {"weigh"},
    "docs/protocol.md": {"weigh"},
    "src/sparrow/meta/": {"fact"},  # the table in the SQLite file
    "tests/meta/test_sqlite_meta_store.py": {"fact"},
    "tests/cli/test_doctor.py": {"fact"},
    "tests/damage/test_losses.py": {"fact"},
    "tests/style/": set(INSTEAD),
}

ALLOWED_CLASSES: Final = {
    "asyncio client and its blocking form": {"Admin", "Client", "Delivery"},
    "one idea in the broker, on the wire and in the client": {
        "Channel", "Connection", "Fetched", "Lease", "LeaseTable", "Leased", "Producer", "Queue", "Reject",
        "Revoke", "Selector", "Session", "Settlement", "Subscription",
    },
    "messages of several protocols": {
        "Commit", "Credit", "Goodbye", "Hello", "Ping", "Publish", "Refusal", "Request", "Server",
        "Response", "Subscribe", "Unsubscribe",
    },
    "one idea in several frontends or codecs": {
        "Authenticator", "CloseReason", "Decoder", "MalformedRequest", "PartitionOffset", "PauseReason",
        "QueueChannel", "Route",
    },
    "public names of a package, or of schemas in the OpenAPI document": {
        "Admission", "Broker", "Deletion", "Failure", "Progress", "Result", "Task",
    },
}  # fmt: skip
"""Public classes of one name in several modules, by the reason."""

ALLOWED_MODULES: Final = {
    "sparrow/testing/__init__.py": "the package that users import",
    "sparrow/broker/reading/__init__.py": "an activity with a package of its own, beside publishes",
}

_RIDDLES: Final = re.compile(
    r'^\s*r?"""(What|Whether|How|Who|Whoever|Whose|So much|So many|Of)\b', re.MULTILINE
)
_RIDDLE_IN_TEXT: Final = re.compile(
    r"[.!?][ \n]+(?:# )?(?:What|Whether|Who|Whoever|Whose|How|Of|So much|So many) [a-z][^.?]*\."
)
_TRANSLATED: Final = re.compile(
    r"(?<!\w)(?:that which|of its own accord|comes? to be|is owed|are owed|told"
    r"|stands?(?!\s+(?:by|for|still)\b)|[Tt]here, too|[Pp]ut aside"
    r"|put_back|take_back|pass_on|dead_lettering)\b"
)
"""Phrases and names for which there is a plain word: reported, is, distinguished, release, …"""
_IN_TRANSLATED: Final = (
    *("that which", "accord", "to be", "owed", "told", "stand", "ere, too", "ut aside"),
    *("put_back", "take_back", "pass_on", "dead_lettering"),
)
"""One of them is in every text that has such a phrase: most texts need no further search."""
_TEST: Final = re.compile(r"^[ ]*(?:async )?def (test_\w+)", re.MULTILINE)
_RIDDLE_OF_TEST: Final = re.compile(
    r"^test_(?:what|who|whoever|whose|whether|how|why|of|that|so)_"
    r"|(?<!_say)(?<!_says)(?<!_tell)(?<!_tells)(?<!_show)(?<!_shows)_(?:what|who|whoever)(?:_|$)"
)
"""Clauses in place of a subject or an object: name the thing. "says_what_to_do" is a statement."""
_RIDDLE_OF_DOCUMENT: Final = re.compile(
    r"^(?:#+ |- |\d\. )?(?:What|Whether|Who|Whose|How|Of|So much|So many) \S.*"
    r"|\| (?:What|Whether|Who|How) \S[^|]*",
    re.MULTILINE,
)
_RIDDLE_OF_HELP: Final = re.compile(r'"(?:What|Whether|Who|Whose|How|Of) [^"]*')
_CLASS: Final = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)


@cache
def everything() -> dict[str, str]:
    """Return the text of every module and document by its path in the repository."""
    modules = [
        path for folder in ("src", "tests", "bench", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in modules + documents}


@cache
def sources() -> dict[str, str]:
    """Return the text of every module by its path below src/."""
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))
    }


def located(pattern: re.Pattern[str], texts: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of each match."""
    for path, text in texts.items():
        for found in pattern.finditer(text):
            yield path, text.count("\n", 0, found.start()) + 1, found[0].strip()


@cache
def parts_of(word: str) -> list[str]:
    """Return the words that an identifier is made of, in lower case and singular."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", word).lower().split("_")
    return [part.removesuffix("s") for part in parts if part]


def test_words_have_one_meaning_and_things_one_word() -> None:
    found = []
    for path, text in everything().items():
        allowed = next((words for prefix, words in ALLOWED_WORDS.items() if path.startswith(prefix)), set())
        lower = text.lower()
        if not any(word in lower for word in INSTEAD):
            continue
        for word in set(re.findall(r"[A-Za-z_]{4,}", text)):
            wrong = [part for part in parts_of(word) if part in INSTEAD and part not in allowed]
            found += [f"{path}: {word!r}; say {INSTEAD[part]}" for part in wrong]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = [f"{path}:{line}: {text}" for path, line, text in located(_RIDDLES, everything())]
    assert not found, "\n".join(found)


def test_sentences_of_source_and_documents_name_their_subject() -> None:
    texts = {
        path: text for path, text in everything().items() if path.startswith(("src/", "docs/", "README"))
    }
    found = [f"{path}:{line}: {text}" for path, line, text in located(_RIDDLE_IN_TEXT, texts)]
    assert not found, "\n".join(found)


def test_texts_for_users_name_their_subject() -> None:
    documents = {path: text for path, text in everything().items() if path.endswith(".md")}
    found = [*located(_RIDDLE_OF_DOCUMENT, documents), *located(_RIDDLE_OF_HELP, sources())]
    assert not found, "\n".join(f"{path}:{line}: {text[:80]}" for path, line, text in found)


def test_source_and_documents_use_plain_phrases() -> None:
    texts = {
        path: text for path, text in everything().items() if path.startswith(("src/", "docs/", "README"))
    }
    some = {path: text for path, text in texts.items() if any(word in text for word in _IN_TRANSLATED)}
    found = [f"{path}:{line}: {text}" for path, line, text in located(_TRANSLATED, some)]
    assert not found, "\n".join(found)


def test_names_of_tests_are_statements() -> None:
    tests = {path: text for path, text in everything().items() if path.startswith("tests/")}
    found = [
        f"{path}:{line}: {name}"
        for path, line, text in located(_TEST, tests)
        if _RIDDLE_OF_TEST.search(name := text.rpartition(" ")[2])
    ]
    assert not found, "\n".join(found)


def test_names_of_classes_say_what_they_are() -> None:
    pattern = re.compile(rf"^class \w*?({'|'.join(NO_CLASSES)})\b", re.MULTILINE)
    found = [f"src/{path}:{line}: {text}" for path, line, text in located(pattern, sources())]
    assert not found, "\n".join(found)


def test_a_public_class_has_its_name_alone() -> None:
    allowed = {name for names in ALLOWED_CLASSES.values() for name in names}
    places = defaultdict(list)
    for path, text in sources().items():
        for name in _CLASS.findall(text):
            places[name].append(path)
    found = {name: paths for name, paths in places.items() if len(paths) > 1 and name not in allowed}
    assert not found, "\n".join(f"{name}: {', '.join(paths)}" for name, paths in sorted(found.items()))


def test_modules_are_named_after_their_content() -> None:
    paths = [path for path in sources() if re.search(r"ing(\.py|/__init__\.py)$", path)]
    assert [path for path in paths if path not in ALLOWED_MODULES] == []


def test_lines_have_a_limit_without_a_blanket_exception() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
    lint = ruff["lint"]
    assert ruff["line-length"] == 110
    assert lint["pycodestyle"]["max-doc-length"] == 100
    assert {"E", "W"} <= set(lint["select"])
    ignored = {*lint["ignore"], *(code for codes in lint["per-file-ignores"].values() for code in codes)}
    assert not ignored & {"E", "W", "E501", "W505", "E5", "W5"}
