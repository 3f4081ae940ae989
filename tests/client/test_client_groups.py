"""Consumer groups through the client: sharing, commits, rebalances, rejoining."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparrow.base.errors import InvalidArgument, StaleMember
from sparrow.client.client import Client
from sparrow.client.subscription import Subscription
from tests.client.conftest import OpenProxy
from tests.client.frontends import Frontend, client_of


async def fill(client: Client, count: int, *, first: int = 0, partitions: int = 4) -> None:
    async with client.producer(batch_bytes=300) as producer:
        for i in range(first, first + count):
            await producer.send("t", b"%d" % i, partition=i % partitions)


async def take(sub: Subscription, count: int) -> list[int]:
    """Return the next messages, one by one."""
    found: list[int] = []
    async with asyncio.timeout(5):
        async for message in sub:
            found.append(int(message.value or b""))
            if len(found) == count:
                return found
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def committed(client: Client, group: str = "g") -> dict[int, int]:
    return {o.partition: o.offset for o in await client.admin.group_offsets(group)}


async def test_a_commit_is_where_the_next_member_goes_on(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1)
    await fill(client, 10, partitions=1)
    async with client.subscribe("t", group="g", start="beginning") as sub:
        assert await take(sub, 4) == [0, 1, 2, 3]
        await sub.commit()
        assert await committed(client) == {0: 4}
        await take(sub, 2)
    async with client.subscribe("t", group="g", start="beginning") as sub:
        assert await take(sub, 6) == [4, 5, 6, 7, 8, 9]


async def test_a_message_is_committed_with_those_before_it(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1)
    await fill(client, 10, partitions=1)
    async with client.subscribe("t", group="g", start="beginning") as sub:
        (batch,) = [await sub.pull(10, wait_s=5)]
        await sub.commit(batch[6])
        assert await committed(client) == {0: 7}
        await sub.commit()
        assert await committed(client) == {0: 10}


async def test_a_commit_without_a_group_is_refused(client: Client) -> None:
    async with client.subscribe("t") as sub:
        with pytest.raises(InvalidArgument, match="group"):
            await sub.commit()


async def test_manual_commit_commits_nothing_by_itself(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1)
    await fill(client, 3, partitions=1)
    async with client.subscribe("t", group="g", start="beginning") as sub:
        await take(sub, 3)
    assert await committed(client) == {}


async def test_automatic_commits_leave_out_unfinished_messages(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1)
    await fill(client, 10, partitions=1)
    options: dict[str, Any] = {
        "group": "g",
        "start": "beginning",
        "commit": "auto",
        "auto_commit_interval_s": 0.01,
    }
    with pytest.raises(ZeroDivisionError):
        await _crash_after(client, 4, options)
    assert await committed(client) == {0: 3}
    async with client.subscribe("t", **options) as sub:
        assert await take(sub, 3) == [3, 4, 5]
        await asyncio.sleep(0.05)
        assert await committed(client) == {0: 5}
    assert await committed(client) == {0: 6}


async def _crash_after(client: Client, count: int, options: dict[str, Any]) -> None:
    async with client.subscribe("t", **options) as sub:
        await take(sub, count)
        raise ZeroDivisionError


async def test_automatic_commits_by_batch_leave_out_the_batch_in_hand(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1)
    await fill(client, 10, partitions=1)
    async with client.subscribe(
        "t", group="g", start="beginning", commit="auto", auto_commit_interval_s=0.01
    ) as sub:
        sizes = []
        async for batch in sub.batches():
            sizes.append(len(batch))
            await asyncio.sleep(0.05)
            assert (await committed(client)).get(0, 0) == sum(sizes[:-1])
            if sum(sizes) == 10:
                break


async def test_two_members_share_the_partitions_and_each_message_goes_to_one(client: Client) -> None:
    await client.admin.create_topic("t", partitions=4)
    got: dict[int, list[int]] = {0: [], 1: []}

    async def work(number: int, sub: Subscription) -> None:
        async for message in sub:
            got[number].append(int(message.value or b""))
            await sub.commit()

    async with client.subscribe("t", group="g", start="beginning") as first:
        await until(lambda: len(first.assignment) == 4)
        async with client.subscribe("t", group="g", start="beginning") as second:
            await until(lambda: len(first.assignment) == len(second.assignment) == 2)
            workers = [asyncio.ensure_future(work(0, first)), asyncio.ensure_future(work(1, second))]
            await fill(client, 40)
            await until(lambda: len(got[0]) + len(got[1]) == 40)
            for worker in workers:
                worker.cancel()
    assert len(got[0]) == len(got[1]) == 20
    assert sorted(got[0] + got[1]) == list(range(40))


async def all_in_hand(sub: Subscription, count: int) -> list[Any]:
    """Take all messages of every partition in one step."""
    await until(lambda: len(sub.assignment) == 2)
    await asyncio.sleep(0.02)
    taken = await sub.pull(count + 1, wait_s=5)
    assert len(taken) == count
    return taken


async def test_partition_is_released_when_its_messages_are_finished(client: Client) -> None:
    await client.admin.create_topic("t", partitions=2)
    await fill(client, 20, partitions=2)
    async with client.subscribe("t", group="g", start="beginning") as first:
        await all_in_hand(first, 20)
        async with client.subscribe("t", group="g", start="beginning") as second:
            await asyncio.sleep(0.05)
            assert second.assignment == []
            await first.commit()
            assert await committed(client) == {0: 10, 1: 10}
            stepping = asyncio.ensure_future(first.pull(1, wait_s=5))
            await until(lambda: second.assignment)
            assert await second.pull(20, wait_s=0.05) == []
            stepping.cancel()


async def test_partition_is_released_in_time_even_with_unfinished_messages(
    client: Client,
) -> None:
    await client.admin.create_topic("t", partitions=2)
    await fill(client, 20, partitions=2)
    async with client.subscribe("t", group="g", start="beginning", rebalance_timeout_s=0.2) as first:
        await all_in_hand(first, 20)
        async with client.subscribe("t", group="g", start="beginning") as second:
            await until(lambda: second.assignment)
            assert len(await second.pull(20, wait_s=5)) == 10
            assert len(first.assignment) == 1


async def test_on_revoked_may_commit_before_the_partitions_are_given_back(client: Client) -> None:
    await client.admin.create_topic("t", partitions=2)
    await fill(client, 10, partitions=2)
    revoked: list[Any] = []

    async def give_back(partitions: list[Any], reason: str) -> None:
        revoked.append((partitions, reason))
        await first.commit()

    first = client.subscribe("t", group="g", start="beginning", on_revoked=give_back)
    async with first:
        await take(first, 10)
        waiting = asyncio.ensure_future(first.pull(1, wait_s=5))
        async with client.subscribe("t", group="g", start="beginning") as second:
            await until(lambda: second.assignment)
            waiting.cancel()
            ((partitions, reason),) = revoked
            assert reason == ""
            assert second.assignment == partitions
            assert await committed(client) == {0: 5, 1: 5}
            assert await second.pull(1, wait_s=0.05) == []


async def test_a_revoked_partition_cannot_be_committed(client: Client) -> None:
    await client.admin.create_topic("t", partitions=2)
    await fill(client, 10, partitions=2)
    async with client.subscribe("t", group="g", start="beginning") as first:
        messages = {m.partition: m for m in await first.pull(10, wait_s=5)}
        messages |= {m.partition: m for m in await first.pull(10, wait_s=0.2)}
        waiting = asyncio.ensure_future(first.pull(100, wait_s=5))
        async with client.subscribe("t", group="g", start="beginning") as second:
            await until(lambda: second.assignment)
            waiting.cancel()
            (gone,) = second.assignment
            with pytest.raises(StaleMember, match="does not belong"):
                await first.commit(messages[gone[1]])
            await first.commit(messages[1 - gone[1]])


@pytest.mark.slow
@pytest.mark.parametrize("commit", ["manual", "auto"])
async def test_a_member_comes_back_over_a_lost_connection_and_goes_on_where_it_was(
    frontend: Frontend, client: Client, open_proxy: OpenProxy, commit: str
) -> None:
    await client.admin.create_topic("t", partitions=2)
    await fill(client, 20, partitions=2)
    proxy = await open_proxy()
    taken: list[int] = []
    async with client_of(proxy.url) as other:
        options: dict[str, Any] = {"group": "g", "start": "beginning", "commit": commit}
        async with other.subscribe("t", **options) as sub:
            member = sub.member_id
            for round_ in range(1, 5):
                taken += await take(sub, 5)
                if round_ == 2 and commit == "manual":
                    await sub.commit()
                proxy.cut()
            assert sub.member_id == member
            await fill(client, 2, first=20, partitions=2)
            taken += await take(sub, 2)
            if commit == "manual":
                await sub.commit()
    assert sorted(taken) == list(range(22))
    assert await committed(client) == {0: 11, 1: 11}


async def test_a_member_that_reads_from_the_end_misses_nothing_over_a_lost_connection(
    frontend: Frontend, client: Client, open_proxy: OpenProxy
) -> None:
    """Nothing was committed, so "end" would be looked up again: messages published while there was
    no connection must be delivered nevertheless.
    """
    await client.admin.create_topic("t", partitions=1)
    proxy = await open_proxy()
    for topics in (["t"], ["t*"]):
        async with (
            client_of(proxy.url) as other,
            other.subscribe(*topics, group=f"g{topics}", start="end") as sub,
        ):
            await until(lambda: sub.assignment)
            proxy.is_refusing = True
            proxy.cut()
            await fill(client, 3, partitions=1)
            proxy.is_refusing = False
            assert await take(sub, 3) == [0, 1, 2]


async def test_a_commit_during_a_lost_connection_is_made_on_the_next(
    frontend: Frontend, client: Client, open_proxy: OpenProxy
) -> None:
    await client.admin.create_topic("t", partitions=1)
    await fill(client, 5, partitions=1)
    proxy = await open_proxy()
    async with client_of(proxy.url) as other, other.subscribe("t", group="g", start="beginning") as sub:
        await take(sub, 5)
        proxy.is_refusing = True
        proxy.cut()
        committing = asyncio.ensure_future(sub.commit())
        await asyncio.sleep(0.02)
        proxy.is_refusing = False
        await committing
        assert await committed(client) == {0: 5}


async def test_a_member_that_was_put_out_joins_again_as_a_new_one(
    frontend: Frontend, client: Client, open_proxy: OpenProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Another connection takes the membership over; the first joins again as a new member, and both
    share.
    """
    await client.admin.create_topic("t", partitions=2)
    revoked: list[Any] = []
    sub = client.subscribe("t", group="g", on_revoked=lambda p, reason: revoked.append((p, reason)))
    async with sub, client_of(frontend.url) as thief:
        await until(lambda: len(sub.assignment) == 2)
        stolen = thief.subscribe("t", group="g")
        stolen._member_id = sub.member_id
        async with stolen:
            await until(lambda: len(sub.assignment) == len(stolen.assignment) == 1)
            assert sub.member_id != stolen.member_id
    assert revoked[0][0] == [("t", 0), ("t", 1)]
    assert "joining again" in caplog.text
