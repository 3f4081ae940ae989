"""The ledger in PostgreSQL, by asyncpg.

Three connections, each opened when it is first needed and again when it was lost: one for commits,
one for the node's row, which also holds the node's lock, and one for everything else. A lost
connection is never used again, so nothing of it can come late.

All tables are in the schema `sparrow`. Migrations are the files `migrations/NNNN_*.sql`; a start
applies those that are missing, one node at a time (an advisory lock). Connections need sessions of
their own: no pooler that shares them by transaction.
"""

from __future__ import annotations

import asyncio
import uuid
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from sparrow.base.errors import DiskFull, InvalidConfig, NewerFormat, SparrowError
from sparrow.cluster.errors import LedgerMissing, LedgerRefused, LedgerUnavailable, OutcomeUnknown
from sparrow.cluster.ledger import (
    HANDOVER_MS,
    MAX_OBJECT_AGE_MS,
    EntryRow,
    LedgerCheck,
    LedgerStatus,
    NodeInfo,
    ShardContent,
    ShardInfo,
    Taken,
    WalRow,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sparrow.cluster.ledger import Commit

MIN_VERSION: Final = 15
LOCK_CLASS: Final = 0x53505257
"""First half of the keys of advisory locks; the second is the node's id, or 0 for migrations."""
CONNECT_S: Final = 5.0
CALL_S: Final = 15.0
"""Time after which a call counts as failed."""
LOAD_S: Final = 600.0
"""The same for reading a whole shard."""
_OFF: Final = "off"

_COMMIT: Final = "SELECT sparrow.commit_shard($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16)"
_NODES: Final = """
  SELECT id, incarnation, addresses, draining, objects,
    (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms,
    EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = $1::bigint::oid
      AND objid = id::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
      AS connected
  FROM sparrow.node ORDER BY id"""
_SHARDS: Final = """
  SELECT id, epoch, owner, seq, taken_from, takeover_ms,
    CASE WHEN handover_at > clock_timestamp() - $1::bigint * interval '1 ms' THEN handover END AS handover,
    (extract(epoch FROM clock_timestamp() - taken_at) * 1000)::bigint AS taken_ms
  FROM sparrow.shard ORDER BY id"""
_NOW_MS: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms"
_UP_MS: Final = "SELECT (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::bigint"


class _Session:
    """A connection that is opened when it is needed. One call at a time."""

    def __init__(self, dsn: str, location: str) -> None:
        self._dsn = dsn
        self._location = location
        self._connection: Any = None
        self.lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def connection(self) -> Any:
        """Return the connection.

        Raises:
            LedgerUnavailable, InvalidConfig
        """
        if not self.is_open:
            try:
                self._connection = await asyncpg.connect(
                    self._dsn,
                    timeout=CONNECT_S,
                    command_timeout=CALL_S,
                    server_settings={"application_name": "sparrow", "search_path": "pg_catalog"},
                )
            except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
                raise InvalidConfig(
                    f"PostgreSQL at {self._location} refused the connection: {error}; check user, "
                    "password and database in cluster.ledger"
                ) from None
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise self.unavailable(error) from None
        return self._connection

    def drop(self) -> None:
        """Close the connection at once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def unavailable(self, error: BaseException) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"PostgreSQL at {self._location} does not answer ({describe(error)}); it is tried again"
        )


class PostgresLedger:
    """A `Ledger` in PostgreSQL.

    Args:
        dsn: URL as libpq takes it; passwords may also be in PGPASSWORD or a password file.
    """

    def __init__(self, dsn: str) -> None:
        self._location = location_of(dsn)
        self._commits = _Session(dsn, self._location)
        self._presence = _Session(dsn, self._location)
        self._other = _Session(dsn, self._location)
        self._lock_held_by: Any = None
        """The connection that holds the node's lock."""
        self._when_disconnected: Callable[[], None] = lambda: None

    @property
    def location(self) -> str:
        return self._location

    # ── start ──

    async def open(self) -> LedgerCheck:
        connection = await self._other.connection()
        version = connection.get_server_version().major
        if version < MIN_VERSION:
            raise InvalidConfig(
                f"PostgreSQL at {self.location} has version {version}; "
                f"a cluster needs {MIN_VERSION} or later: upgrade it"
            )
        if await self._call(connection.fetchval("SELECT pg_is_in_recovery()")):
            raise LedgerUnavailable(
                f"PostgreSQL at {self.location} is a standby, which only reads; name the primary in "
                "cluster.ledger, or all hosts with target_session_attrs=primary, or promote it"
            )
        warnings = await self._check_durability(connection)
        await self._migrate(connection)
        row = await self._call(
            connection.fetchrow(
                "SELECT id, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms, "
                "coalesce(objects, '') AS objects FROM sparrow.cluster"
            )
        )
        return LedgerCheck(str(row["id"]), row["now_ms"], row["objects"], warnings)

    async def note_objects(self, location: str) -> str:
        row = await self._fetch_row(
            "UPDATE sparrow.cluster SET objects = coalesce(objects, $1) RETURNING objects", location
        )
        found: str = row["objects"]
        return found

    async def _check_durability(self, connection: Any) -> list[str]:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            if await self._call(connection.fetchval("SELECT current_setting($1)", name)) == _OFF:
                raise InvalidConfig(
                    f"PostgreSQL at {self.location} runs with {name}=off, so that it may lose what "
                    f"it has confirmed; set {name}=on in postgresql.conf"
                )
        if await self._call(connection.fetchval("SELECT current_setting('synchronous_standby_names')")):
            return []
        warning = (
            f"PostgreSQL at {self.location} has no synchronous standby: what it confirms is on one disk; "
            "set synchronous_standby_names for production"
        )
        return [warning]

    async def _migrate(self, connection: Any) -> None:
        scripts = migrations()
        newest = max(scripts)
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1, 0)", LOCK_CLASS)
                await connection.execute("CREATE SCHEMA IF NOT EXISTS sparrow")
                await connection.execute(
                    "CREATE TABLE IF NOT EXISTS sparrow.migration (number int PRIMARY KEY, "
                    "at timestamptz NOT NULL DEFAULT clock_timestamp())"
                )
                done = await connection.fetchval("SELECT coalesce(max(number), 0) FROM sparrow.migration")
                if done > newest:
                    raise NewerFormat(
                        f"the tables at {self.location} have version {done}, this Sparrow knows {newest}; "
                        "start the later Sparrow that wrote them"
                    )
                for number in range(done + 1, newest + 1):
                    await connection.execute(scripts[number])
                    await connection.execute("INSERT INTO sparrow.migration (number) VALUES ($1)", number)
        except asyncpg.InsufficientPrivilegeError as error:
            raise InvalidConfig(
                f"the user of cluster.ledger cannot make the tables at {self.location} ({error}); "
                "grant CREATE on the database to it"
            ) from None
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self._other.drop()
            raise self._other.unavailable(error) from None

    # ── nodes ──

    async def join(self, incarnation: uuid.UUID, addresses: Mapping[str, str], ttl_ms: int) -> int:
        async with self._presence.lock:
            connection = await self._presence.connection()
            await self._forget_old_nodes(connection)
            self._lock_held_by = None  # of an earlier node of this process, if any
            node: int = await self._call(
                connection.fetchval(
                    "INSERT INTO sparrow.node (incarnation, addresses, expires_at) "
                    "VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 ms') RETURNING id",
                    incarnation,
                    msgspec.json.encode(dict(addresses)).decode(),
                    ttl_ms,
                ),
                self._presence,
            )
            await self._lock_node(connection, node)
            return node

    async def _forget_old_nodes(self, connection: Any) -> None:
        await self._call(
            connection.execute(
                "DELETE FROM sparrow.node WHERE expires_at < clock_timestamp() - interval '1 day' "
                "AND NOT EXISTS (SELECT 1 FROM sparrow.shard WHERE owner = node.id)"
            ),
            self._presence,
        )

    async def _lock_node(self, connection: Any, node: int) -> None:
        """Hold the node's lock in this session. Where the server has not yet noticed that the last
        session is gone, the lock is still that one's, and is asked for again later.
        """
        if self._lock_held_by is not connection and await self._call(
            connection.fetchval("SELECT pg_try_advisory_lock($1, $2)", LOCK_CLASS, node), self._presence
        ):
            self._lock_held_by = connection
            connection.add_termination_listener(self._disconnected)

    async def renew(
        self,
        node: int,
        ttl_ms: int,
        addresses: Mapping[str, str],
        *,
        draining: bool = False,
        objects: str = "",
    ) -> bool:
        async with self._presence.lock:
            connection = await self._presence.connection()
            found = await self._call(
                connection.fetchval(
                    "UPDATE sparrow.node SET expires_at = clock_timestamp() + $2::bigint * interval '1 ms', "
                    "draining = $3, addresses = $4, objects = $5 WHERE id = $1 RETURNING id",
                    node,
                    ttl_ms,
                    draining,
                    msgspec.json.encode(dict(addresses)).decode(),
                    objects,
                ),
                self._presence,
            )
            await self._lock_node(connection, node)
            return found is not None

    def watch(self, when_disconnected: Callable[[], None]) -> None:
        self._when_disconnected = when_disconnected

    def _disconnected(self, connection: object) -> None:
        if connection is self._lock_held_by:
            self._lock_held_by = None
            self._when_disconnected()

    @property
    def holds_lock(self) -> bool:
        return self._lock_held_by is not None

    async def leave(self, node: int) -> None:
        async with self._presence.lock:
            connection = await self._presence.connection()
            await self._call(
                connection.execute("DELETE FROM sparrow.node WHERE id = $1", node), self._presence
            )
            await self._call(connection.execute("SELECT pg_advisory_unlock_all()"), self._presence)
            self._lock_held_by = None

    # ── shards ──

    async def take(self, shard: int, node: int, dead: int | None = None) -> Taken | None:
        row = await self._fetch_row(
            "SELECT epoch, seq FROM sparrow.take_shard($1, $2, $3)", shard, node, dead
        )
        return None if row is None else Taken(row["epoch"], row["seq"])

    async def retake(self, shard: int, node: int) -> Taken | None:
        row = await self._fetch_row(
            "UPDATE sparrow.shard SET epoch = epoch + 1 WHERE id = $1 AND owner = $2 RETURNING epoch, seq",
            shard,
            node,
        )
        return None if row is None else Taken(row["epoch"], row["seq"])

    async def release(self, shard: int, epoch: int) -> bool:
        row = await self._fetch_row(
            "UPDATE sparrow.shard SET owner = NULL, epoch = epoch + 1, handover = NULL, released_by = owner "
            "WHERE id = $1 AND epoch = $2 AND owner IS NOT NULL RETURNING id",
            shard,
            epoch,
        )
        return row is not None

    async def ask_handover(self, shard: int, node: int) -> bool:
        row = await self._fetch_row(
            "UPDATE sparrow.shard SET handover = owner, handover_at = clock_timestamp() "
            "WHERE id = $1 AND owner = $2 RETURNING id",
            shard,
            node,
        )
        return row is not None

    async def note_served(self, shard: int, node: int, takeover_ms: int) -> None:
        await self._fetch_row(
            "UPDATE sparrow.shard SET served_at = clock_timestamp(), takeover_ms = $3 "
            "WHERE id = $1 AND owner = $2",
            shard,
            node,
            takeover_ms,
        )

    async def commit(self, shard: int, epoch: int, commit: Commit) -> bool:
        session = self._commits
        try:
            connection = await session.connection()
        except (LedgerUnavailable, InvalidConfig) as error:  # it was not sent
            raise OutcomeUnknown(error.text) from None
        puts, deletes = commit.puts, commit.deletes
        try:
            done: bool = await connection.fetchval(
                _COMMIT,
                shard,
                epoch,
                commit.seq,
                commit.object_key,
                commit.object_ms,
                commit.at_ms,
                commit.manifest,
                commit.payload,
                [each.kind for each in puts] or None,
                [each.key for each in puts] or None,
                [each.value for each in puts] or None,
                [each.version for each in puts] or None,
                [kind for kind, _ in deletes] or None,
                [key for _, key in deletes] or None,
                list(commit.drops) or None,
                MAX_OBJECT_AGE_MS,
            )
        except asyncpg.PostgresError as error:
            refusal = refusal_of(error, self.location)
            if refusal is None:
                session.drop()
                raise OutcomeUnknown(session.unavailable(error).text) from None
            raise refusal from None
        except (OSError, TimeoutError, asyncpg.InterfaceError) as error:
            session.drop()
            raise OutcomeUnknown(session.unavailable(error).text) from None
        except BaseException:  # cancelled: the statement may be on its way
            session.drop()
            raise
        return done

    async def load(self, shard: int) -> ShardContent:
        async with self._other.lock:
            connection = await self._other.connection()
            wal = await self._call(
                connection.fetch(
                    "SELECT seq, epoch, at_ms, manifest, object, coalesce(octet_length(payload), 0) AS size "
                    "FROM sparrow.wal WHERE shard = $1 ORDER BY seq",
                    shard,
                    timeout=LOAD_S,
                )
            )
            entries = await self._call(
                connection.fetch(
                    "SELECT kind, key, value, version FROM sparrow.entry WHERE shard = $1",
                    shard,
                    timeout=LOAD_S,
                )
            )
        return ShardContent(
            [WalRow(r["seq"], r["epoch"], r["at_ms"], r["manifest"], r["object"], r["size"]) for r in wal],
            [EntryRow(r["kind"], r["key"], r["value"], r["version"]) for r in entries],
        )

    async def entries(self, shard: int, kinds: Sequence[bytes]) -> list[EntryRow]:
        async with self._other.lock:
            connection = await self._other.connection()
            rows = await self._call(
                connection.fetch(
                    "SELECT kind, key, value, version FROM sparrow.entry "
                    "WHERE shard = $1 AND kind = ANY ($2)",
                    shard,
                    list(kinds),
                    timeout=LOAD_S,
                )
            )
        return [EntryRow(r["kind"], r["key"], r["value"], r["version"]) for r in rows]

    async def payload(self, shard: int, seq: int) -> bytes | None:
        row = await self._fetch_row(
            "SELECT payload FROM sparrow.wal WHERE shard = $1 AND seq = $2", shard, seq
        )
        return None if row is None else row["payload"]

    # ── garbage ──

    async def garbage(self, older_than_ms: int, limit: int) -> list[str]:
        async with self._other.lock:
            connection = await self._other.connection()
            rows = await self._call(
                connection.fetch(
                    "SELECT object FROM sparrow.garbage "
                    "WHERE dead_at <= clock_timestamp() - $1::bigint * interval '1 ms' "
                    "ORDER BY dead_at LIMIT $2",
                    older_than_ms,
                    limit,
                )
            )
        return [row["object"] for row in rows]

    async def forget_garbage(self, keys: Sequence[str]) -> None:
        await self._fetch_row("DELETE FROM sparrow.garbage WHERE object = ANY ($1::text[])", list(keys))

    async def named(self, prefix: str) -> set[str]:
        async with self._other.lock:
            connection = await self._other.connection()
            rows = await self._call(
                connection.fetch(
                    "SELECT object FROM sparrow.wal WHERE starts_with(object, $1) "
                    "UNION SELECT object FROM sparrow.garbage WHERE starts_with(object, $1)",
                    prefix,
                )
            )
        return {row["object"] for row in rows}

    # ── the rest ──

    async def now_ms(self) -> int:
        row = await self._fetch_row(_NOW_MS)
        found: int = row["now_ms"]
        return found

    async def status(self) -> LedgerStatus:
        async with self._other.lock:
            connection = await self._other.connection()
            nodes = await self._call(connection.fetch(_NODES, LOCK_CLASS))
            shards = await self._call(connection.fetch(_SHARDS, HANDOVER_MS))
            up_ms: int = await self._call(connection.fetchval(_UP_MS))
        return LedgerStatus(
            [
                NodeInfo(
                    r["id"],
                    uuid.UUID(bytes=r["incarnation"].bytes),
                    msgspec.json.decode(r["addresses"], type=dict[str, str]),
                    r["expires_in_ms"],
                    r["connected"],
                    r["draining"],
                    r["objects"],
                )
                for r in nodes
            ],
            [ShardInfo(**r) for r in shards],
            up_ms,
        )

    async def close(self) -> None:
        for session in (self._commits, self._presence, self._other):
            session.drop()

    async def _fetch_row(self, query: str, *arguments: object) -> Any:
        async with self._other.lock:
            connection = await self._other.connection()
            return await self._call(connection.fetchrow(query, *arguments))

    async def _call(self, call: Awaitable[Any], session: _Session | None = None) -> Any:
        """Await a call; a connection on which one failed is not used again."""
        session = session or self._other
        try:
            return await call
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedColumnError):
            session.drop()
            raise LedgerMissing(
                f"PostgreSQL at {self.location} has no cluster of this version; check cluster.ledger, "
                "or start a broker of this version, which makes or changes the tables"
            ) from None
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            session.drop()
            raise session.unavailable(error) from None
        except BaseException:  # cancelled in the middle
            session.drop()
            raise


def refusal_of(error: asyncpg.PostgresError, location: str) -> SparrowError | None:
    """Return the error of a commit that PostgreSQL has refused for certain; None: the outcome is
    unknown.
    """
    state = error.sqlstate or ""
    # Classes of connections, and of servers that stop: the commit may have happened before that.
    # 25: a server that only reads, as after a failover; 40: try again.
    if state[:2] in ("08", "25", "40", "57", "58", "XX", ""):
        return None
    if state == "53100":
        return DiskFull(f"PostgreSQL at {location} has no space left; give it more")
    return LedgerRefused(f"PostgreSQL at {location} refused a commit: {describe(error)}")


def describe(error: BaseException) -> str:
    """Return the first line of an error of the driver, which has no secrets."""
    text = str(error).splitlines()
    return text[0] if text and text[0] else type(error).__name__


def location_of(dsn: str) -> str:
    """Return the place that a URL names, without user, password and options."""
    from urllib.parse import urlsplit

    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2] or "localhost"
    return f"postgresql://{host}{parts.path}"


def migrations() -> dict[int, str]:
    """Return the SQL of all migrations by number."""
    folder = resources.files("sparrow.cluster") / "migrations"
    return {
        int(each.name[:4]): each.read_text("utf-8") for each in folder.iterdir() if each.name.endswith(".sql")
    }
