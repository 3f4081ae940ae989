"""The table of all operations of administration. The handling of requests by the native protocol
(`frontends/native/requests.py`) and by HTTP (`frontends/http/routes/administration.py`) is derived
from it.

A row: the name, which is the verb of the native protocol; the type of the arguments; the function,
whose docstring is the text of the OpenAPI document; the right that it takes first; and the routes
of HTTP, if there are any. `Client.admin` has a method for each (`sparrow/client/admin.py`), and
`sparrow.sync` the same method for threads.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparrow.frontends.admin import (
    acls,
    broker,
    connections,
    dead_letters,
    groups,
    me,
    overview,
    pipelines,
    queues,
    schedules,
    server,
    sinks,
    status,
    topics,
    unique_publishes,
    users,
    watches,
    webhooks,
)
from sparrow.frontends.admin.fields import Listing
from sparrow.frontends.admin.operation import (
    CONFLICTING,
    FORBIDDEN,
    FORBIDDEN_OR_MISSING,
    AdminOperation,
    HttpRoute,
    Matching,
    Named,
    NoArguments,
)
from sparrow.frontends.admin.states import group_tag, queue_tag, subscriber_tag, topic_tag, user_tag
from sparrow.model.broker import ReloadedConfig
from sparrow.model.groups import GroupDescription
from sparrow.model.pipelines import Report
from sparrow.model.queues import DeadLetterSummary, QueueDescription, RedriveProgress
from sparrow.model.schedules import ScheduleDescription, ScheduledJob
from sparrow.model.sinks import SinkDescription
from sparrow.model.status import BrokerHistory, BrokerStatus
from sparrow.model.topics import TopicDescription
from sparrow.model.webhooks import WebhookDescription

_topic = partial(HttpRoute, tag="topics")
_group = partial(HttpRoute, tag="groups")
_queue = partial(HttpRoute, tag="queues")
_letter = partial(HttpRoute, tag="dead letters")
_started = partial(_letter, "POST", result=RedriveProgress, status=202, refusals=CONFLICTING)
_subscriber = partial(HttpRoute, tag="subscribers")
_schedule = partial(HttpRoute, tag="schedules")
_pipeline = partial(HttpRoute, tag="pipelines")
_user = partial(HttpRoute, tag="users")
_rule = partial(HttpRoute, path="/v1/acls", tag="access rules", result=acls.RuleList, refusals=FORBIDDEN)
_broker = partial(HttpRoute, tag="broker", refusals=FORBIDDEN)

_TOPIC: Final = "/v1/topics/{topic}"
_GROUP: Final = "/v1/groups/{group}"
_QUEUE: Final = "/v1/queues/{queue}"
_SUBSCRIBERS: Final = "/v1/queues/{queue}/subscribers"
_SUBSCRIBER: Final = f"{_SUBSCRIBERS}/{{subscriber}}"
_SCHEDULE: Final = "/v1/schedules/{schedule}"
_USER: Final = "/v1/users/{user}"

OPERATIONS: Final = (
    # ── topics ────────────────────────────────────────────────────────────────────────────────────
    AdminOperation(
        "topic.list", Matching, topics.list_topics, "Describe Topic",
        _topic("GET", "/v1/topics", result=topics.TopicList, query=Listing, refusals=(), shown=topics.listed),
    ),
    AdminOperation(
        "topic.create", topics.CreateTopic, topics.create, "Create Topic",
        _topic(
            "POST", "/v1/topics", result=TopicDescription, body=topics.NewTopic, status=201,
            also=topics.ONLY_VALIDATED, refusals=(403, 409),
        ),
    ),
    AdminOperation(
        "topic.describe", Named, topics.describe, "Describe Topic",
        _topic("GET", _TOPIC, result=TopicDescription, tag_of=topic_tag),
    ),
    AdminOperation("topic.ensure", Named, topics.ensure, "Write Topic"),
    AdminOperation(
        "topic.publish_once", unique_publishes.PublishOnce, unique_publishes.publish, "Write Topic"
    ),
    AdminOperation(
        "topic.configure", topics.ConfigureTopic, topics.configure, "AlterConfigs Topic",
        _topic("PATCH", _TOPIC, result=TopicDescription, body=topics.TopicSettings),
    ),
    AdminOperation(
        "topic.delete", Named, topics.delete, "Delete Topic",
        _topic("DELETE", _TOPIC, status=204, refusals=CONFLICTING, tag_of=topic_tag),
    ),
    AdminOperation(
        "topic.add_partitions", topics.AddPartitions, topics.add_partitions, "Alter Topic",
        _topic("POST", f"{_TOPIC}/partitions", result=TopicDescription, body=topics.Growth),
    ),
    AdminOperation(
        "topic.delete_records", topics.DeleteRecords, topics.truncate, "Delete Topic",
        _topic(
            "POST", f"{_TOPIC}/truncate", result=topics.Starts, body=topics.Truncation,
            arguments=topics.truncation, refusals=CONFLICTING, tag_of=topic_tag,
        ),
    ),
    AdminOperation(
        "topic.skip_batch", topics.SkipBatch, topics.skip_batch, "Delete Topic"
    ),
    AdminOperation(
        "topic.offsets", topics.TopicOffsets, topics.offsets, "Describe Topic",
        _topic(
            "GET", f"{_TOPIC}/offsets", result=topics.OffsetList, query=topics.OffsetsQuery,
            arguments=topics.position, shown=topics.offsets_shown,
        ),
    ),
    AdminOperation(
        "topic.overview", overview.ListPage, overview.topics, "Describe Topic",
        _topic(
            "GET", "/v1/overview/topics", result=overview.TopicPage, query=overview.PageQuery, refusals=(),
            name="overview",
        ),
        is_native=False,
    ),
    AdminOperation(
        "topic.readers", Named, overview.readers, "Describe Topic",
        _topic("GET", f"{_TOPIC}/readers", result=overview.ReaderList), is_native=False,
    ),
    AdminOperation("topic.watch", watches.WatchTopics, watches.watch, "Describe Topic"),
    AdminOperation("topic.weigh", watches.EstimateSizes, watches.estimate_sizes, "Describe Topic"),
    AdminOperation("topic.reach", watches.EstimateOffsets, watches.estimate_offsets, "Describe Topic"),
    # ── groups ────────────────────────────────────────────────────────────────────────────────────
    AdminOperation(
        "group.list", NoArguments, groups.list_groups, "Describe Group",
        _group("GET", "/v1/groups", result=groups.GroupList, refusals=()),
    ),
    AdminOperation(
        "group.describe", groups.GroupNamed, groups.describe, "Describe Group",
        _group("GET", _GROUP, result=GroupDescription, tag_of=group_tag),
    ),
    AdminOperation(
        "group.delete", groups.GroupNamed, groups.delete, "Delete Group",
        _group("DELETE", _GROUP, status=204, refusals=CONFLICTING, tag_of=group_tag),
    ),
    AdminOperation(
        "group.offsets", groups.GroupOffsets, groups.offsets, "Describe Group",
        _group(
            "GET", f"{_GROUP}/offsets", result=groups.CommittedList, query=groups.OffsetsOf,
            arguments=groups.offsets_of, shown=groups.committed_shown,
        ),
    ),
    AdminOperation(
        "group.commit", groups.CommitOffsets, groups.commit, "Read Group",
        _group(
            "PUT", f"{_GROUP}/offsets", body=groups.Commits, arguments=groups.commits, status=204,
            refusals=CONFLICTING, tag_of=group_tag,
        ),
    ),
    AdminOperation(
        "group.reset", groups.ResetGroup, groups.reset, "Read Group",
        _group(
            "POST", f"{_GROUP}/reset", result=groups.PlaceList, body=groups.Reset,
            arguments=groups.resetting, shown=groups.reset_shown, refusals=CONFLICTING, tag_of=group_tag,
        ),
    ),
    AdminOperation(
        "group.overview", overview.ListPage, overview.groups, "Describe Group",
        _group(
            "GET", "/v1/overview/groups", result=overview.GroupPage, query=overview.PageQuery, refusals=(),
            name="overview",
        ),
        is_native=False,
    ),
    AdminOperation("group.introduce", pipelines.Introduce, pipelines.introduce, "Read Group"),
    AdminOperation("group.introduced", pipelines.Introduced, pipelines.introduced, ""),
    # ── queues ────────────────────────────────────────────────────────────────────────────────────
    AdminOperation(
        "queue.list", Matching, queues.list_queues, "Describe Group",
        _queue("GET", "/v1/queues", result=queues.QueueList, query=Listing, refusals=()),
    ),
    AdminOperation(
        "queue.create", queues.CreateQueue, queues.create, "AlterConfigs Group",
        _queue(
            "POST", "/v1/queues", result=QueueDescription, body=queues.NewQueue, status=201,
            refusals=CONFLICTING,
        ),
        _queue(
            "PUT", _QUEUE, result=QueueDescription, body=queues.QueueMade, refusals=CONFLICTING,
            name="put", text=queues.PUT_TEXT,
        ),
    ),
    AdminOperation(
        "queue.overview", overview.ListPage, overview.queues, "Describe Group",
        _queue(
            "GET", "/v1/overview/queues", result=overview.QueuePage, query=overview.PageQuery, refusals=(),
            name="overview",
        ),
        is_native=False,
    ),
    AdminOperation("queue.ensure", queues.CreateQueue, queues.ensure, "AlterConfigs Group"),
    AdminOperation(
        "queue.describe", Named, queues.describe, "Describe Group",
        _queue("GET", _QUEUE, result=queues.QueueShown, shown=queues.queue_shown, tag_of=queue_tag),
    ),
    AdminOperation(
        "queue.configure", queues.ConfigureQueue, queues.configure, "AlterConfigs Group",
        _queue(
            "PATCH", _QUEUE, result=QueueDescription, body=queues.QueueSettings, refusals=CONFLICTING
        ),
    ),
    AdminOperation(
        "queue.delete", Named, queues.delete, "Delete Group",
        _queue("DELETE", _QUEUE, status=204, refusals=CONFLICTING, tag_of=queue_tag),
    ),
    AdminOperation(
        "queue.pause", Named, queues.pause, "AlterConfigs Group",
        _queue("POST", f"{_QUEUE}/pause", status=204),
    ),
    AdminOperation(
        "queue.resume", Named, queues.resume, "AlterConfigs Group",
        _queue("POST", f"{_QUEUE}/resume", status=204),
    ),
    AdminOperation(
        "queue.purge", Named, queues.purge, "Delete Group",
        _queue("POST", f"{_QUEUE}/purge", result=queues.Purged, refusals=CONFLICTING, tag_of=queue_tag),
    ),
    AdminOperation("queue.peek", queues.PeekQueue, queues.peek, "Read Group"),
    AdminOperation(
        "queue.dead_letters", dead_letters.ListDeadLetters, dead_letters.browse,
        "Read Group",
    ),
    AdminOperation(
        "queue.dead_letter_groups", dead_letters.Summarize, dead_letters.summarize, "Read Group",
        _letter(
            "GET", f"{_QUEUE}/dead-letter-groups", result=DeadLetterSummary, query=dead_letters.SummaryQuery
        ),
        is_native=False,
    ),
    AdminOperation(
        "queue.purge_dead_letters", dead_letters.PurgeDeadLetters, dead_letters.purge, "Delete Group",
        _letter(
            "POST", f"{_QUEUE}/dead-letters/purge", result=dead_letters.DeadLettersPurged,
            body=dead_letters.Purge, arguments=dead_letters.purging, refusals=CONFLICTING, tag_of=queue_tag,
        ),
        is_native=False,
    ),
    AdminOperation(
        "queue.redrive", dead_letters.RedriveDeadLetters, dead_letters.redrive,
        "Read Group",
        _started(
            path=f"{_QUEUE}/dead-letters/{{partition}}/{{offset}}/redrive",
            arguments=dead_letters.redriving_one, name="redrive_one", text="Redrive a single dead letter.",
        ),
        _started(
            path=f"{_QUEUE}/redrive", body=dead_letters.Redrive, needs_body=False,
            arguments=dead_letters.redriving,
        ),
    ),
    AdminOperation(
        "queue.redrive_progress", Named, dead_letters.progress, "Describe Group",
        _letter("GET", f"{_QUEUE}/redrive", result=RedriveProgress),
    ),
    AdminOperation(
        "queue.redrive_stop", Named, dead_letters.stop, "Read Group",
        _letter("DELETE", f"{_QUEUE}/redrive", result=RedriveProgress),
    ),
    # ── subscribers and webhooks ──────────────────────────────────────────────────────────────────
    AdminOperation(
        "subscriber.list", webhooks.ListSubscribers, webhooks.list_subscribers, "Describe Group",
        _subscriber("GET", _SUBSCRIBERS, result=webhooks.SubscriberList), is_native=False,
    ),
    AdminOperation(
        "subscriber.describe", webhooks.WebhookNamed, webhooks.describe, "Describe Group",
        _subscriber("GET", _SUBSCRIBER, result=webhooks.SubscriberShown, tag_of=subscriber_tag),
        is_native=False,
    ),
    AdminOperation(
        "subscriber.put", webhooks.PutWebhook, webhooks.put, "Describe Group",
        _subscriber(
            "PUT", _SUBSCRIBER, result=webhooks.SubscriberShown, body=webhooks.Subscriber,
            arguments=webhooks.settings, refusals=CONFLICTING,
        ),
        is_native=False,
    ),
    AdminOperation(
        "subscriber.delete", webhooks.DeleteSubscriber, webhooks.delete, "Describe Group",
        _subscriber(
            "DELETE", _SUBSCRIBER, query=webhooks.Keeping, status=204, refusals=CONFLICTING,
            tag_of=subscriber_tag,
        ),
        is_native=False,
    ),
    AdminOperation("webhook.put", webhooks.PutWebhook, webhooks.put_webhook, "AlterConfigs Group"),
    AdminOperation("webhook.delete", webhooks.DeleteWebhook, webhooks.delete_webhook, "AlterConfigs Group"),
    AdminOperation("webhook.describe", webhooks.WebhookNamed, webhooks.describe_webhook, "Describe Group"),
    AdminOperation("webhook.list", webhooks.ListWebhooks, webhooks.list_webhooks, "Describe Group"),
    AdminOperation(
        "webhook.pause", webhooks.WebhookNamed, webhooks.pause, "AlterConfigs Group",
        _subscriber("POST", f"{_SUBSCRIBER}/pause", result=WebhookDescription),
    ),
    AdminOperation(
        "webhook.resume", webhooks.WebhookNamed, webhooks.resume, "AlterConfigs Group",
        _subscriber("POST", f"{_SUBSCRIBER}/resume", result=WebhookDescription),
    ),
    AdminOperation(
        "webhook.rotate_secret", webhooks.RotateSecret, webhooks.rotate, "AlterConfigs Group",
        _subscriber(
            "POST", f"{_SUBSCRIBER}/rotate-secret", result=WebhookDescription, body=webhooks.Rotation,
            needs_body=False, arguments=webhooks.rotation,
        ),
    ),
    # ── schedules ─────────────────────────────────────────────────────────────────────────────────
    AdminOperation(
        "schedule.list", schedules.ListSchedules, schedules.list_schedules, "Describe Group",
        _schedule(
            "GET", "/v1/schedules", result=schedules.ScheduleList, query=schedules.ScheduleSelection,
            refusals=(),
        ),
    ),
    AdminOperation(
        "schedule.put", schedules.PutSchedule, schedules.put, "AlterConfigs Group",
        _schedule(
            "PUT", _SCHEDULE, result=ScheduleDescription, body=schedules.ScheduleForm,
            arguments=schedules.settings,
        ),
    ),
    AdminOperation(
        "schedule.describe", Named, schedules.describe, "Describe Group",
        _schedule("GET", _SCHEDULE, result=ScheduleDescription),
    ),
    AdminOperation(
        "schedule.delete", Named, schedules.delete, "AlterConfigs Group",
        _schedule("DELETE", _SCHEDULE, status=204),
    ),
    AdminOperation(
        "schedule.pause", Named, schedules.pause, "AlterConfigs Group",
        _schedule("POST", f"{_SCHEDULE}/pause", result=ScheduleDescription),
    ),
    AdminOperation(
        "schedule.resume", Named, schedules.resume, "AlterConfigs Group",
        _schedule("POST", f"{_SCHEDULE}/resume", result=ScheduleDescription),
    ),
    AdminOperation(
        "schedule.run", Named, schedules.run, "AlterConfigs Group",
        _schedule("POST", f"{_SCHEDULE}/run", result=ScheduledJob),
    ),
    # ── sinks and pipelines ───────────────────────────────────────────────────────────────────────
    AdminOperation("sink.stage", sinks.OpenStage, sinks.stage, "Write TransactionalId"),
    AdminOperation("sink.commit", sinks.CommitStages, sinks.commit, "Write TransactionalId"),
    AdminOperation("sink.abort", sinks.AbortStages, sinks.abort, "Write TransactionalId"),
    AdminOperation("sink.renew", sinks.RenewBatch, sinks.renew, "Write TransactionalId"),
    AdminOperation(
        "sink.list", NoArguments, sinks.list_sinks, "Describe TransactionalId",
        _pipeline("GET", "/v1/sinks", result=sinks.SinkList, refusals=()),
    ),
    AdminOperation(
        "sink.describe", sinks.SinkNamed, sinks.describe, "Describe TransactionalId",
        _pipeline("GET", "/v1/sinks/{sink}", result=SinkDescription, name="describe_sink"),
    ),
    AdminOperation("sink.delete", sinks.SinkNamed, sinks.delete, "Write TransactionalId"),
    AdminOperation("pipeline.report", Report, pipelines.report, "Read Group"),
    AdminOperation(
        "pipeline.list", NoArguments, pipelines.list_pipelines, "Describe Group",
        _pipeline("GET", "/v1/pipelines", result=pipelines.PipelineList, refusals=()),
    ),
    # ── users, access rules, quotas, the broker ───────────────────────────────────────────────────
    AdminOperation(
        "user.list", NoArguments, users.list_users, "Describe Cluster",
        _user("GET", "/v1/users", result=users.UserList, refusals=FORBIDDEN, shown=users.users_shown),
    ),
    AdminOperation(
        "user.create", users.SetUser, users.create, "Alter Cluster",
        _user(
            "POST", "/v1/users", result=users.UserMade, body=users.NewUser, status=201, refusals=(403, 409),
            arguments=users.new_user, shown=users.made,
        ),
    ),
    AdminOperation(
        "user.password", users.SetUser, users.set_password, "Alter Cluster",
        _user("PUT", _USER, body=users.Password, arguments=users.hashed, status=204),
    ),
    AdminOperation(
        "user.describe", Named, users.describe, "Describe Cluster",
        _user("GET", _USER, result=users.UserShown, name="describe_user", tag_of=user_tag), is_native=False,
    ),
    AdminOperation(
        "user.delete", Named, users.delete, "Alter Cluster",
        _user("DELETE", _USER, status=204, refusals=CONFLICTING, tag_of=user_tag),
    ),
    AdminOperation(
        "acl.list", acls.SelectRules, acls.list_rules, "Describe Cluster",
        _rule("GET", query=acls.Selection, arguments=acls.selection),
    ),
    AdminOperation(
        "acl.check", acls.CheckRights, acls.check, "Describe Cluster",
        HttpRoute(
            "GET", "/v1/acls/check", tag="access rules", result=acls.RightsAnswer, query=acls.RightsQuestion,
            arguments=acls.question, refusals=FORBIDDEN,
        ),
        is_native=False,
    ),
    AdminOperation(
        "token.list", NoArguments, users.list_tokens, "Describe Cluster",
        _user("GET", "/v1/tokens", result=users.TokenList, refusals=FORBIDDEN), is_native=False,
    ),
    AdminOperation(
        "acl.create", acls.CreateRules, acls.create, "Alter Cluster",
        _rule("POST", body=acls.Rules, status=201, arguments=acls.new_rules, shown=acls.rules_shown),
    ),
    AdminOperation(
        "acl.delete", acls.SelectRules, acls.delete, "Alter Cluster",
        _rule("DELETE", query=acls.Deletion, arguments=acls.deletion),
    ),
    AdminOperation(
        "broker.describe", NoArguments, broker.describe, "Describe Cluster",
        _broker("GET", "/v1/broker", result=broker.BrokerShown),
    ),
    AdminOperation(
        "broker.status", NoArguments, status.describe, "Describe Cluster",
        _broker("GET", "/v1/status", result=BrokerStatus, name="status"),
    ),
    AdminOperation(
        "broker.history", status.AskHistory, status.history, "Describe Cluster",
        _broker(
            "GET", "/v1/history", result=BrokerHistory, query=status.HistoryQuery,
            arguments=status.history_of, refusals=(403, 404),
        ),
    ),
    AdminOperation(
        "broker.options", NoArguments, server.options, "DescribeConfigs Cluster",
        _broker("GET", "/v1/config", result=server.OptionList), is_native=False,
    ),
    AdminOperation(
        "broker.log", NoArguments, server.recent_log, "DescribeConfigs Cluster",
        _broker("GET", "/v1/log", result=server.LogShown), is_native=False,
    ),
    AdminOperation(
        "connection.list", connections.ListConnections, connections.list_connections, "Describe Cluster",
        _broker(
            "GET", "/v1/connections", result=connections.ConnectionList, query=connections.ConnectionsQuery
        ),
        is_native=False,
    ),
    AdminOperation(
        "connection.close", connections.CloseConnection, connections.close, "Alter Cluster",
        _broker(
            "DELETE", "/v1/connections/{number}", status=204, refusals=FORBIDDEN_OR_MISSING,
            name="close_connection",
        ),
        is_native=False,
    ),
    AdminOperation(
        "me", me.AskRights, me.describe, "",
        _broker("GET", "/v1/me", result=me.Me, query=me.RightsQuery, refusals=(), name="me"),
        is_native=False,
    ),
    AdminOperation(
        "broker.reload", NoArguments, broker.reload, "AlterConfigs Cluster",
        _broker("POST", "/v1/broker/reload", result=ReloadedConfig),
    ),
    AdminOperation(
        "quota.list", NoArguments, broker.list_quotas, "DescribeConfigs Cluster",
        _broker("GET", "/v1/quotas", result=broker.QuotaList),
    ),
    AdminOperation(
        "quota.alter", broker.AlterQuota, broker.alter_quota, "AlterConfigs Cluster",
        _broker("PATCH", "/v1/quotas", body=broker.QuotaChanged, status=204),
    ),
)  # fmt: skip
