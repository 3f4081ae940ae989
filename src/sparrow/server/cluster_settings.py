"""Options of cluster mode. The parts that use them are loaded when `cluster.ledger` is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import TEXT, duration, option, size

if TYPE_CHECKING:
    from collections.abc import Mapping

UNSET_MS = -1
_SECRET_OPTIONS = ("key", "secret", "token", "password", "credential")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Where a cluster keeps its data, and its limits; sizes in bytes, times in milliseconds."""

    ledger: str = option(
        "cluster.ledger",
        TEXT,
        "",
        "URL of the PostgreSQL database of a cluster, as postgresql://USER@HOST/DATABASE; none: this "
        "broker keeps its data in data_dir.",
        flag="--ledger",
        environment="SPARROW_LEDGER",
        secret=True,
    )
    objects: str = option(
        "cluster.objects",
        TEXT,
        "",
        "Object store of a cluster: s3://BUCKET/PREFIX, gs://…, az://… or file:///DIRECTORY.",
        flag="--objects",
        environment="SPARROW_OBJECTS",
        secret=True,
    )
    host: str = option(
        "cluster.host",
        TEXT,
        "",
        "Name of this machine for clients of the other brokers, where a listener has all addresses.",
        show="the host name",
    )
    linger_ms: int = option(
        "cluster.linger",
        duration(0, 1000),
        UNSET_MS,
        "Least time between two uploads: longer means fewer and larger objects.",
        show="5ms; 100ms in the store of a cloud",
    )
    inline_bytes_per_s: int = option(
        "cluster.inline_rate",
        size(0, 1 << 40),
        2 << 20,
        "Small batches of so many bytes a second are kept in PostgreSQL until they are merged; all else "
        "is uploaded first. 0: everything is.",
    )
    cache_bytes: int = option(
        "cluster.cache",
        size(1 << 20, 1 << 40),
        256 << 20,
        "Memory for records that were written or read lately.",
    )

    @property
    def location(self) -> str:
        """The places of both engines for people, without secrets."""
        parts = [urlsplit(each) for each in (self.ledger, self.objects)]
        return ", ".join(f"{each.scheme}://{each.netloc.rpartition('@')[2]}{each.path}" for each in parts)

    @property
    def linger_s(self) -> float:
        """The least time between two uploads. Uploads to the store of a cloud are paid for."""
        if self.linger_ms != UNSET_MS:
            return self.linger_ms / 1000
        is_near = self.objects.startswith("file:") or "endpoint=" in self.objects
        return 0.005 if is_near else 0.1

    @property
    def is_on(self) -> bool:
        return bool(self.ledger or self.objects)


def check_cluster(settings: ClusterSettings) -> None:
    """Check that both engines are named.

    Raises:
        InvalidConfig
    """
    if bool(settings.ledger) != bool(settings.objects):
        named, missing = ("ledger", "objects") if settings.ledger else ("objects", "ledger")
        raise InvalidConfig(f"cluster.{named} is set, and cluster.{missing} is not; a cluster needs both")
    if settings.ledger and urlsplit(settings.ledger).scheme not in ("postgresql", "postgres"):
        raise InvalidConfig("cluster.ledger is no URL of PostgreSQL; write postgresql://USER@HOST/DATABASE")


def check_flags(flags: Mapping[str, object]) -> None:
    """Refuse secrets on the command line, where every user of the machine sees them.

    Raises:
        InvalidConfig
    """
    for name, flag, variable in (
        ("cluster_ledger", "--ledger", "SPARROW_LEDGER"),
        ("cluster_objects", "--objects", "SPARROW_OBJECTS"),
    ):
        url = urlsplit(str(flags.get(name, "")))
        options = [option_name.lower() for option_name, _ in parse_qsl(url.query)]
        has_secret = any(word in each for each in options for word in _SECRET_OPTIONS)
        if url.password is not None or has_secret:
            raise InvalidConfig(
                f"{flag} has a secret, which every user of the machine can see (ps): set {variable} "
                "or the file instead, or leave the secret to PGPASSWORD, ~/.pgpass or the variables of AWS"
            )
