"""All object stores keep the contract."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.cluster.directory import DirectoryObjects
from sparrow.cluster.errors import ObjectMissing, ObjectsUnavailable
from sparrow.cluster.object_stores import open_objects
from sparrow.cluster.objects import Objects
from sparrow.cluster.objects_model import MemoryObjects, ObjectFaults
from tests.cluster.conftest import KEY, SECRET
from tests.conformance.objects import ObjectsConformance

if TYPE_CHECKING:
    from collections.abc import Callable


class TestMemoryObjects(ObjectsConformance):
    @pytest.fixture
    def objects(self) -> Objects:
        return MemoryObjects()


class TestDirectoryObjects(ObjectsConformance):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> Objects:
        return open_objects(f"file://{tmp_path}/a%20directory/objects")


@pytest.mark.slow
class TestS3Objects(ObjectsConformance):
    @pytest.fixture
    def objects(self, s3_url: Callable[[str], str]) -> Objects:
        return open_objects(s3_url("prefix"))


@pytest.mark.slow
class TestS3ObjectsOfAWholeBucket(ObjectsConformance):
    @pytest.fixture
    def objects(self, s3_url: Callable[[str], str]) -> Objects:
        return open_objects(s3_url(""))


async def outcomes(seed: int) -> tuple[list[str], int]:
    objects = MemoryObjects(faults=ObjectFaults(seed, failed=0.3, stored_but_error=0.3))
    found = []
    for number in range(40):
        try:
            await objects.put(str(number), [b"data"])
            found.append("stored")
        except ObjectsUnavailable:
            found.append("stored but error" if str(number) in objects.content else "failed")
    return found, objects.puts


async def test_the_same_seed_gives_the_same_faults() -> None:
    found, puts = await outcomes(5)
    assert (found, puts) == await outcomes(5)
    assert set(found) == {"stored", "stored but error", "failed"}
    assert puts == 40 - found.count("failed")


async def test_a_directory_has_no_unfinished_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = DirectoryObjects(str(tmp_path))

    def fail(_: object, __: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ObjectsUnavailable, match="No space left"):
        await objects.put("w/a", [b"data"])
    monkeypatch.undo()
    assert await objects.find() == []
    assert list((tmp_path / "w").iterdir()) == []
    (tmp_path / "w" / "b.1.part").write_bytes(b"of a process that was killed")
    assert await objects.find() == []


@pytest.mark.parametrize("url", ["http://bucket/a", "bucket", "s3://", "file://", "ftp://u:hidden@h/p"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"s3://BUCKET/PREFIX") as raised:
        open_objects(url.replace("u:hidden@", ""))
    assert "hidden" not in raised.value.text


@pytest.mark.slow
async def test_errors_of_s3_have_no_secrets(
    s3_url: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    objects = open_objects(s3_url("p").replace("s3://", "s3://no-such-"))
    with pytest.raises((ObjectsUnavailable, ObjectMissing)) as raised:
        await objects.put("a", [b"data"])
    shown = raised.value.text + objects.location + caplog.text
    assert SECRET not in shown
    assert "no-such-" in raised.value.text


@pytest.mark.slow
async def test_a_store_that_does_not_answer_says_so() -> None:
    pytest.importorskip("obstore")
    url = f"s3://bucket/p?endpoint=http://127.0.0.1:1&access_key_id={KEY}&secret_access_key={SECRET}&region=x"
    objects = open_objects(url)
    with pytest.raises(ObjectsUnavailable, match="s3://bucket/p/a") as raised:
        await objects.put("a", [b"data"])
    assert SECRET not in raised.value.text


@pytest.mark.parametrize(
    ("options", "is_unsigned"),
    [
        ("region=x", True),
        ("endpoint=https://s3.example", True),
        ("endpoint=https://s3.example&unsigned_payload=false", False),
        ("endpoint=https://s3.example&aws_unsigned_payload=false", False),
        ("endpoint=http://s3.example", False),
        ("endpoint=http://s3.example&unsigned_payload=true", True),
    ],
)
def test_uploads_are_hashed_unless_tls_protects_them(options: str, *, is_unsigned: bool) -> None:
    pytest.importorskip("obstore")
    objects: Any = open_objects(f"s3://bucket/p?access_key_id={KEY}&secret_access_key={SECRET}&{options}")
    config = objects._store.config
    found = config.get("unsigned_payload", config.get("aws_unsigned_payload", "false"))
    assert (str(found).lower() == "true") == is_unsigned


def test_an_option_that_there_is_not_is_refused() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(InvalidConfig, match=r"cluster\.objects"):
        open_objects("s3://bucket/p?end_point=x")


@pytest.mark.slow
async def test_credentials_come_from_the_file_of_aws(
    s3_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[work]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "work")
    url = s3_url("p")
    url = url.replace(f"&access_key_id={KEY}&secret_access_key={SECRET}", "")
    assert SECRET not in url
    objects = open_objects(url)
    await objects.put("a", [b"data"])
    assert await objects.get("a") == b"data"


async def heads_of_a_put(
    monkeypatch: pytest.MonkeyPatch, options: str = "", **variables: str
) -> tuple[str, str]:
    """Put an object where every request is forbidden; return the head of the request, and the
    error's text.
    """
    pytest.importorskip("obstore")
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/missing")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        objects = open_objects(f"s3://bucket/p?endpoint=http://127.0.0.1:{port}{options}")
        with pytest.raises(ObjectsUnavailable, match="check the credentials") as raised:
            await objects.put("a", [b"data"])
    return heads[0], raised.value.text


async def test_credentials_come_from_the_variables_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "AWS_ACCESS_KEY_ID": "key-of-variables",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "token-of-variables",
        "AWS_REGION": "eu-west-3",
    }
    head, error = await heads_of_a_put(monkeypatch, **variables)
    assert "Credential=key-of-variables/" in head
    assert "/eu-west-3/s3/" in head
    assert "x-amz-security-token: token-of-variables" in head
    assert not any(each in error for each in (SECRET, "key-of-variables", "token-of-variables"))


async def test_credentials_of_the_url_win_over_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    options = f"&region=x&access_key_id={KEY}&secret_access_key={SECRET}"
    head, error = await heads_of_a_put(
        monkeypatch, options, AWS_ACCESS_KEY_ID="key-of-variables", AWS_SECRET_ACCESS_KEY="other"
    )
    assert f"Credential={KEY}/" in head
    assert SECRET not in error
