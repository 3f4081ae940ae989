"""The object stores by their URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sparrow.base.errors import InvalidConfig
from sparrow.cluster.directory import DirectoryObjects

if TYPE_CHECKING:
    from sparrow.cluster.objects import Objects


def open_objects(url: str) -> Objects:
    """Return the object store of a URL: s3://, gs://, az:// or a directory as file:///…

    Raises:
        InvalidConfig: the URL names none.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return DirectoryObjects(unquote(parts.path))
    if parts.scheme in ("s3", "gs", "az") and parts.netloc:
        from sparrow.cluster.remote import RemoteObjects

        return RemoteObjects(url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    raise InvalidConfig(
        f"cluster.objects is {place}; it is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or "
        "file:///DIRECTORY"
    )
