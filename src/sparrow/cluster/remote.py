"""Objects in S3, Google Cloud Storage or Azure, by obstore.

    s3://bucket/prefix?endpoint=http://10.0.0.5:9000&region=eu-west-1

Options of the URL are those of obstore (`endpoint`, `region`, `access_key_id`, …). For S3,
credentials come from them, else from the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
else from the credentials file of AWS, else from the machine's role. For the others see obstore.
"""

from __future__ import annotations

import configparser
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import (
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from sparrow.base.errors import InvalidConfig
from sparrow.cluster.errors import ObjectMissing, ObjectsUnavailable
from sparrow.cluster.objects import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT: Final = "30s"
CONNECT_TIMEOUT: Final = "5s"
_CREDENTIALS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_LISTED_AT_ONCE: Final = 1000


class RemoteObjects:
    """`Objects` in a bucket.

    Raises:
        InvalidConfig: the URL or the credentials cannot be used.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        bucket = parts.netloc.rpartition("@")[2]
        self._location = f"{parts.scheme}://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        options = dict(parse_qsl(parts.query))
        if parts.scheme == "s3":
            options = {**_aws_credentials(os.environ, options), **options}
        client: dict[str, Any] = {"timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT}
        if options.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        elif parts.scheme == "s3" and "aws_unsigned_payload" not in options:
            options.setdefault("unsigned_payload", "true")  # TLS finds changed bytes without a SHA-256
        try:
            connect: Any = from_url  # its types name each option of each store
            self._store: Any = connect(
                f"{parts.scheme}://{parts.netloc}",
                config=options,
                client_options=client,
                # The committer repeats what fails, and knows for how long.
                retry_config={"max_retries": 1},
            )
        except UnknownConfigurationKeyError as error:
            raise InvalidConfig(
                f"cluster.objects has an option that there is not: {_first_line(error)}"
            ) from None
        except (BaseError, ValueError) as error:
            raise InvalidConfig(f"cluster.objects cannot be used: {_first_line(error)}") from None

    @property
    def location(self) -> str:
        return self._location

    async def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            await obstore.put_async(self._store, self._prefix + key, data, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._unavailable("writing", key, error) from None

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            if length is None and not start:
                found = await obstore.get_async(self._store, self._prefix + key)
                return bytes(await found.bytes_async())
            if length is None:
                size = (await obstore.head_async(self._store, self._prefix + key))["size"]
                length = max(size - start, 0)
            if not length:
                return b""
            return bytes(
                await obstore.get_range_async(self._store, self._prefix + key, start=start, length=length)
            )
        except (NotFoundError, FileNotFoundError):
            raise ObjectMissing(f"{self.location} has no object {key}; restore it from a backup") from None
        except (BaseError, OSError) as error:
            raise self._unavailable("reading", key, error) from None

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:  # one by one: not every store has the call for many
            try:
                await obstore.delete_async(self._store, self._prefix + key)
            except (NotFoundError, FileNotFoundError):
                continue
            except (BaseError, OSError) as error:
                raise self._unavailable("deleting", key, error) from None

    async def find(self, prefix: str = "") -> list[ObjectInfo]:
        # Stores list below whole parts of keys.
        below, _, _ = prefix.rpartition("/")
        found = []
        try:
            stream = obstore.list(self._store, self._prefix + below or None, chunk_size=_LISTED_AT_ONCE)
            async for chunk in stream:
                found += [ObjectInfo(each["path"].removeprefix(self._prefix), each["size"]) for each in chunk]
        except (BaseError, OSError) as error:
            raise self._unavailable("listing", prefix, error) from None
        return sorted((each for each in found if each.key.startswith(prefix)), key=lambda each: each.key)

    def _unavailable(self, doing: str, key: str, error: Exception) -> ObjectsUnavailable:
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
            return ObjectsUnavailable(
                f"{doing} {self.location}/{key} is not allowed; check the credentials of cluster.objects"
            )
        return ObjectsUnavailable(f"{doing} {self.location}/{key} failed: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without the query of a URL in it."""
    words = str(error).strip().splitlines()[:1] or [type(error).__name__]
    return " ".join(word.partition("?")[0] if "://" in word else word for word in words[0].split())


def _aws_credentials(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the credentials of AWS's file, if nothing else gives any: obstore does not read it."""
    has_own = any(name.removeprefix("aws_") == "access_key_id" for name in given)
    if has_own or "AWS_ACCESS_KEY_ID" in environment:
        return {}
    path = environment.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
    file = configparser.ConfigParser()
    try:
        file.read(path)
    except (OSError, configparser.Error):
        raise InvalidConfig(f"the credentials file {path} cannot be read; correct it") from None
    profile = environment.get("AWS_PROFILE", "default")
    section = file[profile] if file.has_section(profile) else {}
    return {name: section[name] for name in _CREDENTIALS if name in section}
