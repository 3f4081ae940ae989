"""Results of administrative calls, with the field names of `docs/protocol.md`. They are declared in
`sparrow.model`.
"""

from __future__ import annotations

from sparrow.model.access import AccessRule, Quota, UserListing
from sparrow.model.broker import BrokerDescription, ReloadedConfig
from sparrow.model.groups import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupPosition,
    MemberDescription,
)
from sparrow.model.queues import (
    DeadLetter,
    PeekedRecord,
    QueueConsumerListing,
    QueueDescription,
    QueueStatistics,
    RedriveProgress,
    SubscriberStatistics,
)
from sparrow.model.schedules import ScheduleDescription, ScheduledJob, ScheduleStatistics
from sparrow.model.sinks import SinkDescription, StageDescription
from sparrow.model.status import Attention, BrokerHistory, BrokerStatus, MessageRates
from sparrow.model.topics import (
    ConfigEntry,
    OncePublished,
    PartitionDescription,
    PartitionOffset,
    RemovedBatch,
    TopicDescription,
)
from sparrow.model.webhooks import WebhookDescription, WebhookStatistics

__all__ = [
    "AccessRule",
    "Attention",
    "BrokerDescription",
    "BrokerHistory",
    "BrokerStatus",
    "CommittedOffset",
    "ConfigEntry",
    "DeadLetter",
    "GroupDescription",
    "GroupListing",
    "GroupPosition",
    "MemberDescription",
    "MessageRates",
    "OncePublished",
    "PartitionDescription",
    "PartitionOffset",
    "PeekedRecord",
    "QueueConsumerListing",
    "QueueDescription",
    "QueueStatistics",
    "Quota",
    "RedriveProgress",
    "ReloadedConfig",
    "RemovedBatch",
    "ScheduleDescription",
    "ScheduleStatistics",
    "ScheduledJob",
    "SinkDescription",
    "StageDescription",
    "SubscriberStatistics",
    "TopicDescription",
    "UserListing",
    "WebhookDescription",
    "WebhookStatistics",
]
