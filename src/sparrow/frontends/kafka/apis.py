"""The table of served APIs, their versions and handlers: one row per API key.

A handler is named by module and function under `handlers/`; it is imported at the first request. It
is written for one version of the message (the newest of its range unless the row says otherwise).
Older requests are converted to that version, and its response is written in the version of the
request. If the shape of a message changed too much for one class, a key has several routes.
`docs/kafka.md` shows this table; a test compares them.
"""

from __future__ import annotations

from msgspec import Struct


class Route(Struct, frozen=True):
    """A range of versions of one key, served by one handler. `schema`: the version of its classes;
    -1: requests are passed in their own version.
    """

    first: int
    last: int
    handler: str
    schema: int


class Api(Struct, frozen=True):
    """One API key. `advertised_from`: the lowest version in ApiVersions, if it differs from the
    lowest served one.
    """

    key: int
    name: str
    routes: tuple[Route, ...]
    advertised_from: int | None = None
    needs_authentication: bool = True

    @property
    def first(self) -> int:
        return self.routes[0].first

    @property
    def last(self) -> int:
        return self.routes[-1].last

    def route(self, version: int) -> Route | None:
        """Return the route that serves a version; None if the version is not served."""
        for route in self.routes:
            if route.first <= version <= route.last:
                return route
        return None


def _api(key: int, name: str, first: int, last: int, handler: str) -> Api:
    return Api(key, name, (Route(first, last, handler, last),))


_ROWS = (
    # Kafka advertises version 0 of Produce although it refuses 0 to 2, because librdkafka looks for
    # it (KAFKA-18659).
    Api(0, "Produce", (Route(3, 13, "produce:handle", -1),), advertised_from=0),
    Api(1, "Fetch", (Route(4, 18, "fetch:handle", -1),)),
    _api(2, "ListOffsets", 1, 11, "list_offsets:handle"),
    # Version 11 dropped the authorized operations of the cluster.
    Api(3, "Metadata", (Route(0, 10, "metadata:handle", 10), Route(11, 13, "metadata:handle", 13))),
    Api(
        8,
        "OffsetCommit",
        (
            Route(2, 4, "offsets:commit_with_retention", 4),
            Route(5, 9, "offsets:commit", 9),
            Route(10, 10, "offsets:commit_by_id", 10),
        ),
    ),
    Api(
        9,
        "OffsetFetch",
        (
            Route(1, 7, "offsets:fetch_of_one", 7),
            Route(8, 9, "offsets:fetch", 9),
            Route(10, 10, "offsets:fetch_by_id", 10),
        ),
    ),
    Api(
        10,
        "FindCoordinator",
        (
            Route(0, 3, "group_admin:find_coordinator", 3),
            Route(4, 6, "group_admin:find_coordinators", 6),
        ),
    ),
    _api(11, "JoinGroup", 0, 9, "groups:join"),
    _api(12, "Heartbeat", 0, 4, "groups:heartbeat"),
    Api(13, "LeaveGroup", (Route(0, 2, "groups:leave_one", 2), Route(3, 5, "groups:leave", 5))),
    _api(14, "SyncGroup", 0, 5, "groups:sync"),
    _api(15, "DescribeGroups", 0, 6, "group_admin:describe"),
    _api(16, "ListGroups", 0, 5, "group_admin:list_groups"),
    Api(17, "SaslHandshake", (Route(0, 1, "sasl:handshake", 1),), needs_authentication=False),
    Api(18, "ApiVersions", (Route(0, 4, "api_versions:handle", 4),), needs_authentication=False),
    _api(19, "CreateTopics", 2, 7, "topics:create"),
    Api(20, "DeleteTopics", (Route(1, 5, "topics:delete_named", 5), Route(6, 6, "topics:delete", 6))),
    _api(21, "DeleteRecords", 0, 2, "delete_records:handle"),
    _api(22, "InitProducerId", 0, 5, "transactions:initialize"),
    _api(23, "OffsetForLeaderEpoch", 2, 4, "leader_epochs:handle"),
    _api(24, "AddPartitionsToTxn", 0, 3, "transactions:add_partitions"),
    _api(25, "AddOffsetsToTxn", 0, 4, "transactions:add_offsets"),
    _api(26, "EndTxn", 0, 5, "transactions:end"),
    _api(27, "WriteTxnMarkers", 1, 2, "transactions:abort_producers"),
    _api(28, "TxnOffsetCommit", 0, 5, "transactions:commit_offsets"),
    _api(29, "DescribeAcls", 1, 3, "acls:describe"),
    _api(30, "CreateAcls", 1, 3, "acls:create"),
    _api(31, "DeleteAcls", 1, 3, "acls:delete"),
    _api(32, "DescribeConfigs", 1, 4, "configs:describe"),
    _api(33, "AlterConfigs", 0, 2, "configs:alter"),
    _api(34, "AlterReplicaLogDirs", 1, 2, "log_dirs:alter"),
    _api(35, "DescribeLogDirs", 1, 5, "log_dirs:describe"),
    Api(36, "SaslAuthenticate", (Route(0, 2, "sasl:authenticate", 2),), needs_authentication=False),
    _api(37, "CreatePartitions", 0, 3, "topics:create_partitions"),
    _api(42, "DeleteGroups", 0, 2, "group_admin:delete"),
    _api(43, "ElectLeaders", 0, 2, "reassignments:elect"),
    _api(44, "IncrementalAlterConfigs", 0, 1, "configs:alter_incrementally"),
    _api(45, "AlterPartitionReassignments", 0, 1, "reassignments:alter"),
    _api(46, "ListPartitionReassignments", 0, 0, "reassignments:list_ongoing"),
    _api(47, "OffsetDelete", 0, 0, "offsets:delete"),
    _api(48, "DescribeClientQuotas", 0, 1, "quotas:describe"),
    _api(49, "AlterClientQuotas", 0, 1, "quotas:alter"),
    _api(50, "DescribeUserScramCredentials", 0, 0, "scram_credentials:describe"),
    _api(51, "AlterUserScramCredentials", 0, 0, "scram_credentials:alter"),
    _api(55, "DescribeQuorum", 0, 2, "cluster:describe_quorum"),
    Api(57, "UpdateFeatures", (Route(0, 2, "features:update", -1),)),
    _api(60, "DescribeCluster", 0, 2, "cluster:describe"),
    _api(61, "DescribeProducers", 0, 0, "transaction_listings:describe_producers"),
    _api(65, "DescribeTransactions", 0, 0, "transaction_listings:describe"),
    _api(66, "ListTransactions", 0, 2, "transaction_listings:list_all"),
    _api(68, "ConsumerGroupHeartbeat", 0, 1, "consumer_groups:heartbeat"),
    _api(69, "ConsumerGroupDescribe", 0, 1, "consumer_groups:describe"),
    _api(74, "ListConfigResources", 0, 1, "configs:list_resources"),
    _api(75, "DescribeTopicPartitions", 0, 0, "topic_partitions:handle"),
    _api(76, "ShareGroupHeartbeat", 1, 1, "share_groups:heartbeat"),
    _api(77, "ShareGroupDescribe", 1, 1, "share_groups:describe"),
    _api(78, "ShareFetch", 1, 2, "share_fetch:handle"),
    _api(79, "ShareAcknowledge", 1, 2, "share_acknowledge:handle"),
    _api(90, "DescribeShareGroupOffsets", 0, 1, "share_offsets:describe"),
    _api(91, "AlterShareGroupOffsets", 0, 0, "share_offsets:alter"),
    _api(92, "DeleteShareGroupOffsets", 0, 0, "share_offsets:delete"),
)

APIS: dict[int, Api] = {row.key: row for row in _ROWS}
