"""The table of all operations of administration. The handling of requests by the native protocol
(`frontends/native/requests.py`) and by HTTP (`frontends/http/routes/administration.py`) is derived
from it.

A row: the name, which is the verb of the native protocol; the type of the arguments; the function,
whose docstring is the text of the OpenAPI document; the right, as people call it; and the routes of
HTTP, if there are any. `Client.admin` has a method for each (`sparrow/client/admin.py`), and
`sparrow.sync` the same method for threads.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparrow.frontends.admin import (
    acls,
    broker,
    dead_letters,
    groups,
    pipelines,
    queues,
    sinks,
    topics,
    users,
    watches,
    webhooks,
)
from sparrow.frontends.admin.fields import Listing
from sparrow.frontends.admin.operation import (
    CONFLICTING,
    FORBIDDEN,
    HttpRoute,
    Matching,
    Named,
    NoArguments,
    Operation,
)
from sparrow.model.broker import ReloadedConfig
from sparrow.model.groups import GroupDescription
from sparrow.model.pipelines import Report
from sparrow.model.queues import QueueDescription, RedriveProgress
from sparrow.model.topics import TopicDescription
from sparrow.model.webhooks import WebhookDescription

_topic = partial(HttpRoute, tag="topics")
_group = partial(HttpRoute, tag="groups")
_queue = partial(HttpRoute, tag="queues")
_letter = partial(HttpRoute, tag="dead letters")
_started = partial(_letter, "POST", result=RedriveProgress, status=202, refusals=CONFLICTING)
_subscriber = partial(HttpRoute, tag="subscribers")
_user = partial(HttpRoute, tag="users")
_rule = partial(HttpRoute, path="/v1/acls", tag="access rules", result=acls.RuleList, refusals=FORBIDDEN)
_broker = partial(HttpRoute, tag="broker", refusals=FORBIDDEN)

_TOPIC: Final = "/v1/topics/{topic}"
_GROUP: Final = "/v1/groups/{group}"
_QUEUE: Final = "/v1/queues/{queue}"
_SUBSCRIBERS: Final = "/v1/queues/{queue}/subscribers"
_SUBSCRIBER: Final = f"{_SUBSCRIBERS}/{{subscriber}}"
_USER: Final = "/v1/users/{user}"
_ON_CLUSTER: Final = "ALTER on the cluster"

OPERATIONS: Final = (
    # ── topics ────────────────────────────────────────────────────────────────────────────────────
    Operation(
        "topic.list", Matching, topics.list_topics, "DESCRIBE on each topic",
        _topic("GET", "/v1/topics", result=topics.TopicList, query=Listing, refusals=(), shown=topics.listed),
    ),
    Operation(
        "topic.create", topics.CreateTopic, topics.create, "CREATE on the topic or the cluster",
        _topic(
            "POST", "/v1/topics", result=TopicDescription, body=topics.NewTopic, status=201,
            also=topics.ONLY_VALIDATED, refusals=(403, 409),
        ),
    ),
    Operation(
        "topic.describe", Named, topics.describe, "DESCRIBE on the topic",
        _topic("GET", _TOPIC, result=TopicDescription),
    ),
    Operation("topic.ensure", Named, topics.ensure, "WRITE on the topic, CREATE to create it"),
    Operation(
        "topic.configure", topics.ConfigureTopic, topics.configure, "ALTER_CONFIGS on the topic",
        _topic("PATCH", _TOPIC, result=TopicDescription, body=topics.TopicSettings),
    ),
    Operation(
        "topic.delete", Named, topics.delete, "DELETE on the topic or the cluster",
        _topic("DELETE", _TOPIC, status=204, refusals=CONFLICTING),
    ),
    Operation(
        "topic.add_partitions", topics.AddPartitions, topics.add_partitions, "ALTER on the topic",
        _topic("POST", f"{_TOPIC}/partitions", result=TopicDescription, body=topics.Growth),
    ),
    Operation(
        "topic.delete_records", topics.DeleteRecords, topics.truncate, "DELETE on the topic",
        _topic(
            "POST", f"{_TOPIC}/truncate", result=topics.Starts, body=topics.Truncation,
            arguments=topics.truncation, refusals=CONFLICTING,
        ),
    ),
    Operation(
        "topic.skip_batch", topics.SkipBatch, topics.skip_batch, "DELETE on the topic, ALTER on the cluster"
    ),
    Operation(
        "topic.offsets", topics.TopicOffsets, topics.offsets, "DESCRIBE on the topic",
        _topic(
            "GET", f"{_TOPIC}/offsets", result=topics.OffsetList, query=topics.OffsetsQuery,
            arguments=topics.position, shown=topics.offsets_shown,
        ),
    ),
    Operation("topic.watch", watches.WatchTopics, watches.watch, "READ on the topics"),
    Operation("topic.weigh", watches.EstimateSizes, watches.estimate_sizes, "READ on the topic"),
    Operation("topic.reach", watches.EstimateOffsets, watches.estimate_offsets, "READ on the topic"),
    # ── groups ────────────────────────────────────────────────────────────────────────────────────
    Operation(
        "group.list", NoArguments, groups.list_groups, "DESCRIBE on each group",
        _group("GET", "/v1/groups", result=groups.GroupList, refusals=()),
    ),
    Operation(
        "group.describe", groups.GroupNamed, groups.describe, "DESCRIBE on the group",
        _group("GET", _GROUP, result=GroupDescription),
    ),
    Operation(
        "group.delete", groups.GroupNamed, groups.delete, "DELETE on the group",
        _group("DELETE", _GROUP, status=204, refusals=CONFLICTING),
    ),
    Operation(
        "group.offsets", groups.GroupOffsets, groups.offsets, "DESCRIBE on the group",
        _group(
            "GET", f"{_GROUP}/offsets", result=groups.CommittedList, query=groups.OffsetsOf,
            arguments=groups.offsets_of, shown=groups.committed_shown,
        ),
    ),
    Operation(
        "group.commit", groups.CommitOffsets, groups.commit, "READ on the group and its topics",
        _group(
            "PUT", f"{_GROUP}/offsets", body=groups.Commits, arguments=groups.commits, status=204,
            refusals=CONFLICTING,
        ),
    ),
    Operation(
        "group.reset", groups.ResetGroup, groups.reset, "READ on the group and the topic",
        _group(
            "POST", f"{_GROUP}/reset", result=groups.PlaceList, body=groups.Reset,
            arguments=groups.resetting, shown=groups.reset_shown, refusals=CONFLICTING,
        ),
    ),
    Operation("group.introduce", pipelines.Introduce, pipelines.introduce, "READ on the group"),
    Operation("group.introduced", pipelines.Introduced, pipelines.introduced, "none"),
    # ── queues ────────────────────────────────────────────────────────────────────────────────────
    Operation(
        "queue.list", Matching, queues.list_queues, "DESCRIBE on each queue",
        _queue("GET", "/v1/queues", result=queues.QueueList, query=Listing, refusals=()),
    ),
    Operation(
        "queue.create", queues.CreateQueue, queues.create, "READ on the queue and its topics",
        _queue(
            "POST", "/v1/queues", result=QueueDescription, body=queues.NewQueue, status=201,
            refusals=CONFLICTING,
        ),
        _queue(
            "PUT", _QUEUE, result=QueueDescription, body=queues.QueueMade, refusals=CONFLICTING,
            name="put", text=queues.PUT_TEXT,
        ),
    ),
    Operation("queue.ensure", queues.CreateQueue, queues.ensure, "READ on the queue and its topics"),
    Operation(
        "queue.describe", Named, queues.describe, "DESCRIBE on the queue",
        _queue("GET", _QUEUE, result=QueueDescription),
    ),
    Operation(
        "queue.configure", queues.ConfigureQueue, queues.configure, "READ on the queue",
        _queue(
            "PATCH", _QUEUE, result=QueueDescription, body=queues.QueueSettings, refusals=CONFLICTING
        ),
    ),
    Operation(
        "queue.delete", Named, queues.delete, "DELETE on the queue",
        _queue("DELETE", _QUEUE, status=204),
    ),
    Operation(
        "queue.pause", Named, queues.pause, "READ on the queue",
        _queue("POST", f"{_QUEUE}/pause", status=204),
    ),
    Operation(
        "queue.resume", Named, queues.resume, "READ on the queue",
        _queue("POST", f"{_QUEUE}/resume", status=204),
    ),
    Operation(
        "queue.purge", Named, queues.purge, "READ on the queue",
        _queue("POST", f"{_QUEUE}/purge", result=queues.Purged),
    ),
    Operation("queue.peek", queues.PeekQueue, queues.peek, "READ on the queue and its topics"),
    Operation(
        "queue.dead_letters", dead_letters.ListDeadLetters, dead_letters.browse,
        "READ on the queue and its dead-letter topic",
    ),
    Operation(
        "queue.redrive", dead_letters.RedriveDeadLetters, dead_letters.redrive,
        "READ on the queue and its dead-letter topic",
        _started(
            path=f"{_QUEUE}/dead-letters/{{partition}}/{{offset}}/redrive",
            arguments=dead_letters.redriving_one, name="redrive_one", text="Redrive a single dead letter.",
        ),
        _started(
            path=f"{_QUEUE}/redrive", body=dead_letters.Redrive, needs_body=False,
            arguments=dead_letters.redriving,
        ),
    ),
    Operation(
        "queue.redrive_progress", Named, dead_letters.progress, "DESCRIBE on the queue",
        _letter("GET", f"{_QUEUE}/redrive", result=RedriveProgress),
    ),
    Operation(
        "queue.redrive_stop", Named, dead_letters.stop, "READ on the queue",
        _letter("DELETE", f"{_QUEUE}/redrive", result=RedriveProgress),
    ),
    # ── subscribers and webhooks ──────────────────────────────────────────────────────────────────
    Operation(
        "subscriber.list", webhooks.ListSubscribers, webhooks.list_subscribers, "DESCRIBE on the queue",
        _subscriber("GET", _SUBSCRIBERS, result=webhooks.SubscriberList), is_native=False,
    ),
    Operation(
        "subscriber.describe", webhooks.WebhookNamed, webhooks.describe, "DESCRIBE on the queue",
        _subscriber("GET", _SUBSCRIBER, result=webhooks.SubscriberShown), is_native=False,
    ),
    Operation(
        "subscriber.put", webhooks.PutWebhook, webhooks.put, "READ on the queue and its topics",
        _subscriber(
            "PUT", _SUBSCRIBER, result=webhooks.SubscriberShown, body=webhooks.Subscriber,
            arguments=webhooks.settings, refusals=CONFLICTING,
        ),
        is_native=False,
    ),
    Operation(
        "subscriber.delete", webhooks.DeleteSubscriber, webhooks.delete, "READ on the queue",
        _subscriber("DELETE", _SUBSCRIBER, query=webhooks.Keeping, status=204, refusals=CONFLICTING),
        is_native=False,
    ),
    Operation("webhook.put", webhooks.PutWebhook, webhooks.put_webhook, "READ on the queue and its topics"),
    Operation("webhook.delete", webhooks.DeleteWebhook, webhooks.delete_webhook, "READ on the queue"),
    Operation("webhook.describe", webhooks.WebhookNamed, webhooks.describe_webhook, "DESCRIBE on the queue"),
    Operation("webhook.list", webhooks.ListWebhooks, webhooks.list_webhooks, "DESCRIBE on each queue"),
    Operation(
        "webhook.pause", webhooks.WebhookNamed, webhooks.pause, "READ on the queue",
        _subscriber("POST", f"{_SUBSCRIBER}/pause", result=WebhookDescription),
    ),
    Operation(
        "webhook.resume", webhooks.WebhookNamed, webhooks.resume, "READ on the queue",
        _subscriber("POST", f"{_SUBSCRIBER}/resume", result=WebhookDescription),
    ),
    Operation(
        "webhook.rotate_secret", webhooks.RotateSecret, webhooks.rotate, "READ on the queue",
        _subscriber(
            "POST", f"{_SUBSCRIBER}/rotate-secret", result=WebhookDescription, body=webhooks.Rotation,
            needs_body=False, arguments=webhooks.rotation,
        ),
    ),
    # ── sinks and pipelines ───────────────────────────────────────────────────────────────────────
    Operation("sink.stage", sinks.OpenStage, sinks.stage, "WRITE on the transactional id"),
    Operation("sink.commit", sinks.CommitStages, sinks.commit, "WRITE on the transactional id"),
    Operation("sink.abort", sinks.AbortStages, sinks.abort, "WRITE on the transactional id"),
    Operation("sink.renew", sinks.RenewBatch, sinks.renew, "WRITE on the transactional id"),
    Operation("sink.list", NoArguments, sinks.list_sinks, "DESCRIBE on each transactional id"),
    Operation("sink.describe", sinks.SinkNamed, sinks.describe, "DESCRIBE on the transactional id"),
    Operation("sink.delete", sinks.SinkNamed, sinks.delete, "WRITE on the transactional id"),
    Operation("pipeline.report", Report, pipelines.report, "READ on the group of the pipeline"),
    Operation("pipeline.list", NoArguments, pipelines.list_pipelines, "DESCRIBE on each group"),
    # ── users, access rules, quotas, the broker ───────────────────────────────────────────────────
    Operation(
        "user.list", NoArguments, users.list_users, "DESCRIBE on the cluster",
        _user("GET", "/v1/users", result=users.UserList, refusals=FORBIDDEN, shown=users.users_shown),
    ),
    Operation(
        "user.create", users.SetUser, users.create, _ON_CLUSTER,
        _user(
            "POST", "/v1/users", result=users.UserMade, body=users.NewUser, status=201, refusals=(403, 409),
            arguments=users.new_user, shown=users.made,
        ),
    ),
    Operation(
        "user.password", users.SetUser, users.set_password, _ON_CLUSTER,
        _user("PUT", _USER, body=users.Password, arguments=users.hashed, status=204),
    ),
    Operation("user.delete", Named, users.delete, _ON_CLUSTER, _user("DELETE", _USER, status=204)),
    Operation(
        "acl.list", acls.SelectRules, acls.list_rules, "DESCRIBE on the cluster",
        _rule("GET", query=acls.Selection, arguments=acls.selection),
    ),
    Operation(
        "acl.create", acls.CreateRules, acls.create, _ON_CLUSTER,
        _rule("POST", body=acls.Rules, status=201, arguments=acls.new_rules, shown=acls.rules_shown),
    ),
    Operation(
        "acl.delete", acls.SelectRules, acls.delete, _ON_CLUSTER,
        _rule("DELETE", query=acls.Deletion, arguments=acls.deletion),
    ),
    Operation(
        "broker.describe", NoArguments, broker.describe, "DESCRIBE on the cluster",
        _broker("GET", "/v1/broker", result=broker.BrokerShown),
    ),
    Operation(
        "broker.reload", NoArguments, broker.reload, "ALTER_CONFIGS on the cluster",
        _broker("POST", "/v1/broker/reload", result=ReloadedConfig),
    ),
    Operation(
        "quota.list", NoArguments, broker.list_quotas, "DESCRIBE_CONFIGS on the cluster",
        _broker("GET", "/v1/quotas", result=broker.QuotaList),
    ),
    Operation(
        "quota.alter", broker.AlterQuota, broker.alter_quota, "ALTER_CONFIGS on the cluster",
        _broker("PATCH", "/v1/quotas", body=broker.QuotaChanged, status=204),
    ),
)  # fmt: skip
