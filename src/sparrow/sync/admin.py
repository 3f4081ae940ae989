"""Administration for threads: the methods of `sparrow.client.Admin`, made of them."""

from __future__ import annotations

from sparrow.client.admin import Admin as AsyncAdmin
from sparrow.sync.part import BlockingPart, blocking


class Admin(BlockingPart[AsyncAdmin]):
    """The administration of a broker, `client.admin`."""

    create_topic = blocking(AsyncAdmin.create_topic)
    ensure_topic = blocking(AsyncAdmin.ensure_topic)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    describe_topic = blocking(AsyncAdmin.describe_topic)
    list_topics = blocking(AsyncAdmin.list_topics)
    configure_topic = blocking(AsyncAdmin.configure_topic)
    add_partitions = blocking(AsyncAdmin.add_partitions)
    offsets = blocking(AsyncAdmin.offsets)
    delete_records = blocking(AsyncAdmin.delete_records)
    skip_batch = blocking(AsyncAdmin.skip_batch)

    list_groups = blocking(AsyncAdmin.list_groups)
    describe_group = blocking(AsyncAdmin.describe_group)
    group_offsets = blocking(AsyncAdmin.group_offsets)
    commit = blocking(AsyncAdmin.commit)
    reset_group = blocking(AsyncAdmin.reset_group)
    delete_group = blocking(AsyncAdmin.delete_group)

    list_users = blocking(AsyncAdmin.list_users)
    create_user = blocking(AsyncAdmin.create_user)
    set_password = blocking(AsyncAdmin.set_password)
    delete_user = blocking(AsyncAdmin.delete_user)

    create_access_rules = blocking(AsyncAdmin.create_access_rules)
    list_access_rules = blocking(AsyncAdmin.list_access_rules)
    delete_access_rules = blocking(AsyncAdmin.delete_access_rules)

    alter_quota = blocking(AsyncAdmin.alter_quota)
    list_quotas = blocking(AsyncAdmin.list_quotas)

    put_webhook = blocking(AsyncAdmin.put_webhook)
    delete_webhook = blocking(AsyncAdmin.delete_webhook)
    describe_webhook = blocking(AsyncAdmin.describe_webhook)
    list_webhooks = blocking(AsyncAdmin.list_webhooks)
    pause_webhook = blocking(AsyncAdmin.pause_webhook)
    resume_webhook = blocking(AsyncAdmin.resume_webhook)
    rotate_webhook_secret = blocking(AsyncAdmin.rotate_webhook_secret)

    put_schedule = blocking(AsyncAdmin.put_schedule)
    delete_schedule = blocking(AsyncAdmin.delete_schedule)
    describe_schedule = blocking(AsyncAdmin.describe_schedule)
    list_schedules = blocking(AsyncAdmin.list_schedules)
    pause_schedule = blocking(AsyncAdmin.pause_schedule)
    resume_schedule = blocking(AsyncAdmin.resume_schedule)
    run_schedule = blocking(AsyncAdmin.run_schedule)

    list_sinks = blocking(AsyncAdmin.list_sinks)
    describe_sink = blocking(AsyncAdmin.describe_sink)
    delete_sink = blocking(AsyncAdmin.delete_sink)

    describe_broker = blocking(AsyncAdmin.describe_broker)
    broker_status = blocking(AsyncAdmin.broker_status)
    broker_history = blocking(AsyncAdmin.broker_history)
    reload_config = blocking(AsyncAdmin.reload_config)

    create_queue = blocking(AsyncAdmin.create_queue)
    ensure_queue = blocking(AsyncAdmin.ensure_queue)
    configure_queue = blocking(AsyncAdmin.configure_queue)
    delete_queue = blocking(AsyncAdmin.delete_queue)
    describe_queue = blocking(AsyncAdmin.describe_queue)
    list_queues = blocking(AsyncAdmin.list_queues)
    pause_queue = blocking(AsyncAdmin.pause_queue)
    resume_queue = blocking(AsyncAdmin.resume_queue)
    purge_queue = blocking(AsyncAdmin.purge_queue)
    peek_queue = blocking(AsyncAdmin.peek_queue)
    dead_letters = blocking(AsyncAdmin.dead_letters)
    redrive_queue = blocking(AsyncAdmin.redrive_queue)
    redrive_progress = blocking(AsyncAdmin.redrive_progress)
    stop_redrive = blocking(AsyncAdmin.stop_redrive)
