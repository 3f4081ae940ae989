"""The engines that the commands of `sparrow cluster` look at."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sparrow.cluster.objects import Objects
    from sparrow.cluster.postgres import PostgresLedger
    from sparrow.server.cluster_settings import ClusterSettings

Config = Annotated[
    str | None,
    typer.Option("--config", metavar="PATH", help="The configuration file that names the ledger."),
]


def read_settings(config: str | None) -> ClusterSettings:
    """Return the engines that `sparrow serve` would use.

    Raises:
        InvalidConfig: no ledger is named, or what is named cannot be one.
    """
    from sparrow.server.cluster_settings import check_cluster
    from sparrow.server.config import load

    found, _ = load({} if config is None else {"config": config}, os.environ)
    if not found.cluster.ledger:
        raise InvalidConfig("no ledger is configured; set SPARROW_LEDGER, or cluster.ledger in the file")
    if found.cluster.objects:
        check_cluster(found.cluster)
    return found.cluster


@asynccontextmanager
async def open_ledger(settings: ClusterSettings) -> AsyncIterator[PostgresLedger]:
    """Yield a connection to the ledger.

    Raises:
        InvalidConfig: a package is missing.
    """
    try:
        from sparrow.cluster.postgres import PostgresLedger
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    ledger = PostgresLedger(settings.ledger)
    try:
        yield ledger
    finally:
        await ledger.close()


def find_objects(settings: ClusterSettings) -> Objects:
    """Return the object store.

    Raises:
        InvalidConfig: none is named, it cannot be used, or a package is missing.
    """
    from sparrow.cluster.object_stores import open_objects

    if not settings.objects:
        raise InvalidConfig("no object store is configured; set SPARROW_OBJECTS, or cluster.objects")
    try:
        return open_objects(settings.objects)
    except ModuleNotFoundError as error:
        raise _missing(error) from None


def _missing(error: ModuleNotFoundError) -> InvalidConfig:
    return InvalidConfig(
        f"`sparrow cluster` needs the package {error.name}; install it with: "
        "pip install 'sparrow-broker[cluster]'"
    )
