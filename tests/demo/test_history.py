"""Git's history as messages: every shape of repository is read, or the sample takes its place and
says why.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.demo.history import History, Sample, find
from tests.demo.repositories import git, repository

DIAMOND = [[], [0], [0], [0], [1, 2, 3], [], [4, 5]]
"""Two roots, a merge of three and one of two."""


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own settings play no part."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def diamond(tmp_path: Path) -> Path:
    return repository(tmp_path / "diamond", DIAMOND)


def subjects(source: object) -> list[str]:
    return [json.loads(each.value)["subject"] for each in source.messages()]


def test_every_commit_is_a_message_with_its_parents(diamond):
    found = find(str(diamond))
    messages = list(found.messages())
    by_id = {each.id: each for each in messages}
    hashes = {int(json.loads(each.value)["subject"].split()[1]): each.id for each in messages}
    assert found.count() == len(by_id) == len(DIAMOND)
    for number, parents in enumerate(DIAMOND):
        assert by_id[hashes[number]].parents == tuple(hashes[each] for each in parents)


def test_message_says_what_git_says_and_no_address(diamond):
    message = next(find(str(diamond)).messages())
    assert message.key == b"Ada Quill"
    assert json.loads(message.value) == {
        "hash": git(diamond, "rev-parse", "HEAD"),
        "parents": git(diamond, "rev-parse", "HEAD^1", "HEAD^2").split(),
        "author": "Ada Quill",
        "time": "2026-05-01T18:00:00Z",
        "week": "2026-W18",
        "files": 0,
        "subject": "Change 6",
    }
    assert b"example.org" not in b"".join(each.value for each in find(str(diamond)).messages())


def test_children_come_before_their_parents_and_the_truth_the_other_way_round(diamond):
    order = [each.id for each in find(str(diamond)).messages()]
    truth = list(find(str(diamond)).truth())
    newest_first = {id_: at for at, id_ in enumerate(order)}
    oldest_first = {id_: at for at, (id_, _) in enumerate(truth)}
    for id_, parents in truth:
        assert all(newest_first[each] > newest_first[id_] for each in parents)
        assert all(oldest_first[each] < oldest_first[id_] for each in parents)
    assert set(order) == set(oldest_first)


def test_files_are_counted_whatever_their_names(tmp_path):
    names = [b'"a b\\nc.txt"', b"\xff\xfe.txt", b"plain", b'"tab\\there"']
    path = repository(tmp_path / "names", [[], [0]], files=names)
    assert [json.loads(each.value)["files"] for each in find(str(path)).messages()] == [4, 4]


def test_broken_encodings_are_replaced(tmp_path):
    path = repository(tmp_path / "odd", [[]], author=b"Bj\xf6rn", subject=b"caf\xe9 \x01\x1b[31m")
    message = next(find(str(path)).messages())
    assert message.key == "Bj\ufffdrn".encode()
    assert subjects(find(str(path))) == ["caf\ufffd \x01\x1b[31m 0"]


def test_commit_without_author_has_the_author_unknown(tmp_path):
    path = repository(tmp_path / "nobody", [[]], author=b"")
    assert next(find(str(path)).messages()).key == b"unknown"


@pytest.mark.parametrize("seconds", [b"0", b"253402300800", b"99999999999999"])
def test_times_that_no_calendar_has_are_read(tmp_path, seconds):
    path = repository(tmp_path / "times", [])
    made = b"commit refs/heads/main\nauthor A <a> %s +0000\ncommitter A <a> %s +0000\ndata 1\nx\n" % (
        seconds,
        seconds,
    )
    git(path, "fast-import", "--quiet", "--date-format=raw-permissive", data=made)
    (message,) = find(str(path)).messages()
    assert json.loads(message.value)["time"] in {"1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}


def test_subdirectory_stands_for_its_repository(diamond):
    git(diamond, "checkout", "-q", "main")
    (diamond / "below").mkdir()
    assert find(str(diamond / "below")).count() == len(DIAMOND)


def test_bare_repository_is_read(diamond, tmp_path):
    git(tmp_path, "clone", "-q", "--bare", str(diamond), "bare")
    assert find(str(tmp_path / "bare")).count() == len(DIAMOND)


def test_worktree_has_the_history_of_its_own_head(diamond, tmp_path):
    git(diamond, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"), "HEAD~1")
    assert find(str(tmp_path / "tree")).count() == 5


def test_settings_and_variables_do_not_change_the_history(diamond, tmp_path, monkeypatch):
    expected = list(find(str(diamond)).messages())
    settings = {
        "color.ui": "always",
        "core.quotePath": "false",
        "diff.external": "false",
        "diff.relative": "true",
        "log.showRoot": "false",
        "log.showSignature": "true",
    }
    for name, value in settings.items():
        git(diamond, "config", name, value)
    git(diamond, "-c", "user.name=A", "-c", "user.email=a", "notes", "add", "-m", "a note", "HEAD")
    other = repository(tmp_path / "other", [[]])
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_TRACE", "1")
    (diamond / "below").mkdir()
    assert list(find(str(diamond / "below")).messages()) == expected


def test_commits_made_meanwhile_play_no_part(diamond):
    found = find(str(diamond))
    git(diamond, "update-ref", "refs/heads/main", "main~1")
    assert found.count() == len(list(found.messages())) == len(list(found.truth())) == len(DIAMOND)


def test_shallow_clone_gives_way_to_the_sample(diamond, tmp_path):
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{diamond}", "shallow")
    found = find(str(tmp_path / "shallow"))
    assert isinstance(found, Sample)
    assert "shallow clone" in found.note
    assert "made-up" in found.note


def test_clone_without_trees_gives_way_to_the_sample(diamond, tmp_path):
    git(diamond, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=tree:0", f"file://{diamond}", "treeless")
    assert "without trees" in find(str(tmp_path / "treeless")).note


def test_repository_without_commits_gives_way_to_the_sample(tmp_path):
    assert "no commit yet" in find(str(repository(tmp_path / "empty", []))).note


def test_directory_that_is_no_repository_gives_way_unless_it_was_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert "not a git repository" in find(None).note
    with pytest.raises(InvalidArgument, match=r"cannot be read as a git repository: .*not a git repository"):
        find(str(tmp_path))
    with pytest.raises(InvalidArgument, match="gone: no such directory"):
        find(str(tmp_path / "gone"))


def test_repository_of_somebody_else_is_refused_in_the_words_of_git(diamond, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(InvalidArgument, match=r"dubious ownership.*safe\.directory"):
        find(str(diamond))
    monkeypatch.chdir(diamond)
    assert "dubious ownership" in find(None).note


def test_machine_without_git_uses_the_sample(diamond, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(diamond)
    assert "git is not installed" in find(None).note
    with pytest.raises(InvalidArgument, match="git is not installed"):
        find(str(diamond))


def test_damaged_history_is_an_error_and_no_shorter_history(diamond):
    found = find(str(diamond))
    tree = git(diamond, "rev-parse", "HEAD^1^1^{tree}")
    (diamond / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert isinstance(found, History)
    with pytest.raises(SparrowError, match=r"could not read the whole history.*git fsck"):
        list(found.messages())
