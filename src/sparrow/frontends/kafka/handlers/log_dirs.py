"""DescribeLogDirs and AlterReplicaLogDirs: there is one directory, and every partition is in it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.frontends.kafka.call import NO_THROTTLE, encode_large
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest

    from sparrow.broker.log_dirs import LogDirectory
    from sparrow.frontends.kafka.call import Call


async def describe(request: DescribeLogDirsRequest, call: Call) -> Any:
    """Return the sizes of all partitions (null), or of those that are named and exist."""
    wanted: dict[str, list[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, []).extend(topic.partitions)
    try:
        directory = await call.broker.describe_log_directory(wanted, principal=call.principal)
    except SparrowError as error:
        return DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=code_of(error), results=())
    entries = sum(map(len, directory.topics.values()))
    return await encode_large(partial(_response, directory), entries, call)


def _response(directory: LogDirectory) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(_directory(directory),)
    )


def _directory(directory: LogDirectory) -> DescribeLogDirsResult:
    topics = tuple(
        DescribeLogDirsTopic(
            name=name,
            partitions=tuple(
                DescribeLogDirsPartition(
                    partition_index=index, partition_size=size, offset_lag=0, is_future_key=False
                )
                for index, size in sizes.items()
            ),
        )
        for name, sizes in directory.topics.items()
    )
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def alter(request: AlterReplicaLogDirsRequest, call: Call) -> AlterReplicaLogDirsResponse:
    """Accept moving a partition to the directory in which it is; nothing is done."""
    denied: ErrorCode | None = None
    try:
        call.broker.access.require_cluster(call.principal, Operation.ALTER)
    except SparrowError as error:
        denied = code_of(error)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            results.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(
                    partition_index=index,
                    error_code=denied or _moved(directory.path, topic.name, index, call),
                )
                for index in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(partitions))
            for name, partitions in results.items()
        ),
    )


def _moved(path: str, topic: str, partition: int, call: Call) -> ErrorCode:
    if path.rstrip("/") != call.broker.log_directory:
        return ErrorCode.log_dir_not_found
    try:
        call.broker.topics.check_partition(topic, partition)
    except SparrowError as error:
        return code_of(error)
    return ErrorCode.none
