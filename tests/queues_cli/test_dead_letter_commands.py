"""`sparrow queue dead-letters`, and the errors for a dead-letter topic before the first dead
letter, over each listener.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from sparrow.base.errors import InvalidArgument, UnknownQueue, UnknownTopic
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.queues_cli.conftest import Run


def die(client: Client, name: str, *errors: str) -> None:
    """Let one record of the queue die for each error: rejected, but for those that begin with
    "nack:".
    """
    for error in errors:
        client.publish(name, b"body of " + error.encode(), key=b"k", headers={"own": b"1"})
    left = list(errors)
    with client.queue(name) as queue:
        for job in queue:
            error = left.pop(0)
            if error.startswith("nack:"):
                job.nack(error=error.removeprefix("nack:"))
            else:
                job.reject(error)
            if not left:
                break
    while client.admin.describe_queue(name).statistics.dead_lettered < len(errors):
        pass


def test_dead_letters_say_why_when_and_from_where(run: Run, client: Client, name: str) -> None:
    run("create", name, "--delivery-limit", 1)
    die(client, name, "no such address", "nack:smtp is down")
    shown = run("dead-letters", name)
    assert (shown.code, shown.err) == (0, "")
    heading, *rows = shown.rows
    assert heading == ["DIED", "REASON", "DELIVERIES", "FROM", "ERROR", "VALUE"]
    assert [row[1:] for row in rows] == [
        ["REJECTED", "1", f"{name}/0 @0", "no such address", "body of no such address"],
        ["DELIVERY_LIMIT", "1", f"{name}/0 @1", "smtp is down", "body of nack:smtp is down"],
    ]
    died = datetime.fromisoformat(rows[0][0])
    assert abs(datetime.now(UTC) - died) < timedelta(minutes=10)
    assert run("dead-letters", name).rows == [heading, *rows]  # nothing changed by looking


def test_dead_letters_as_json_have_all_that_is_known(run: Run, client: Client, name: str) -> None:
    run("create", name, "--delivery-limit", 1)
    die(client, name, "no such address")
    (line,) = run("dead-letters", name, "--json").out.splitlines()
    found = json.loads(line)
    assert (found["topic"], found["key"], found["value"]) == (f"{name}.dead", "k", "body of no such address")
    assert found["headers"] == {"own": "1"}
    about = found["queue"]
    assert (about["reason"], about["error"], about["delivery_count"], about["state"]) == (
        "REJECTED",
        "no such address",
        1,
        "ready",
    )
    assert (about["origin"]["topic"], about["origin"]["partition"], about["origin"]["offset"]) == (name, 0, 0)
    assert about["origin"]["timestamp"] <= about["first_delivery"] <= about["died"]


def test_dead_letters_are_chosen_and_limited_and_the_rest_is_mentioned(
    run: Run, client: Client, name: str
) -> None:
    run("create", name, "--delivery-limit", 1)
    die(client, name, "a", "b", "nack:c", "d")
    limited = run("dead-letters", name, "--max", 2)
    assert [row[4] for row in limited.rows[1:]] == ["a", "b"]
    assert limited.err == "sparrow: there are more than 2; --max shows more\n"
    exact = run("dead-letters", name, "--max", 4)
    assert (len(exact.rows), exact.err) == (5, "")
    chosen = run("dead-letters", name, "--where", "reason=DELIVERY_LIMIT")
    assert [row[4] for row in chosen.rows[1:]] == ["c"]
    none = run("dead-letters", name, "--where", "error~nothing like it")
    assert (none.code, none.out, none.err) == (
        0,
        "",
        f"sparrow: queue {name} has no dead letters that match\n",
    )
    assert run("dead-letters", name, "--where", "colour=red").code == 2


def test_more_dead_letters_than_one_response_holds_are_all_read(run: Run, client: Client, name: str) -> None:
    run("create", name)
    die(client, name, *[str(number) for number in range(250)])
    assert [each.error for each in client.admin.dead_letters(name, 250)] == [str(n) for n in range(250)]
    assert len(client.admin.dead_letters(name, 249)) == 249
    assert [each.error for each in client.admin.dead_letters(name, error_contains="24")] == [
        "24",
        "124",
        "224",
        *map(str, range(240, 247)),
    ]
    with pytest.raises(InvalidArgument, match="max_records is 0"):
        client.admin.dead_letters(name, 0)


def test_queue_without_dead_letters_says_so(run: Run, name: str) -> None:
    run("create", name)
    found = run("dead-letters", name)
    assert (found.code, found.out, found.err) == (0, "", f"sparrow: queue {name} has no dead letters\n")
    assert run("dead-letters", name, "--json").out == ""


def test_queue_without_and_queue_of_dead_letters_have_different_errors(
    run: Run, client: Client, name: str
) -> None:
    run("create", f"{name}.x", "--no-dead-letters")
    assert "keeps no dead letters" in run("dead-letters", f"{name}.x").err
    run("create", name)
    die(client, name, "broken")
    found = run("dead-letters", f"{name}.dead")
    assert found.code == 2
    assert "is where dead letters lie; ask for those of the queue that they came from" in found.err


# ── before the first dead letter ──────────────────────────────────────────────────────────────────


def nothing_yet(name: str) -> str:
    return (
        f"there are no dead letters yet: those of queue '{name}' go to '{name}.dead', which is made with "
        "the first one"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["queue", "describe", "{}"],
        ["queue", "peek", "{}"],
        ["queue", "lease", "{}"],
        ["queue", "dead-letters", "{}"],
        ["queue", "redrive", "{}"],
        ["queue", "purge", "{}", "--yes"],
        ["queue", "configure", "{}", "--lease", "1m"],
        ["queue", "publish", "{}", "x"],
        ["topic", "describe", "{}"],
        ["consume", "{}"],
        ["consume", "{}", "--max", "1"],
    ],
    ids=" ".join,
)
def test_commands_say_that_nothing_has_died_yet(sparrow_command: Run, name: str, command: list[str]) -> None:
    sparrow_command("queue", "create", name)
    found = sparrow_command(*(word.format(f"{name}.dead") for word in command))
    assert found.err == f"sparrow: {nothing_yet(name)}\n"
    assert found.code != 0
    other = sparrow_command(*(word.format(f"{name}x.dead") for word in command))
    assert "no dead letters yet" not in other.err


def test_native_clients_learn_that_nothing_has_died_yet(run: Run, client: Client, name: str) -> None:
    run("create", name)
    for ask in (client.admin.describe_queue, client.admin.peek_queue, client.admin.dead_letters):
        with pytest.raises(UnknownQueue) as caught:
            ask(f"{name}.dead")
        assert caught.value.text == nothing_yet(name)
    for ask in (client.admin.describe_topic, client.admin.offsets):
        with pytest.raises(UnknownTopic) as refused:
            ask(f"{name}.dead")
        assert refused.value.text == nothing_yet(name)


@pytest.mark.parametrize(
    "path",
    [
        "queues/{}",
        "queues/{}/dead-letters",
        "topics/{}",
        "topics/{}/messages?from=0",
        "topics/{}/stream",
    ],
)
def test_http_says_that_nothing_has_died_yet(server: RunningBroker, run: Run, name: str, path: str) -> None:
    run("create", name)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{server.http}/v1/{path.format(f'{name}.dead')}")
    answer = json.loads(caught.value.read())
    assert caught.value.code == 404
    assert nothing_yet(name) in answer["detail"]


def test_a_dead_letter_topic_of_another_name_does_not_reveal_its_queue(
    run: Run, client: Client, name: str
) -> None:
    run("create", name, "--dead-letter-topic", f"{name}-failures")
    with pytest.raises(UnknownQueue) as caught:
        client.admin.describe_queue(f"{name}-failures")
    assert caught.value.text == (
        f"there are no dead letters yet: those of a queue go to '{name}-failures', which is made "
        "with the first one"
    )


def test_after_the_first_dead_letter_all_of_them_work(
    sparrow_command: Run, run: Run, client: Client, name: str
) -> None:
    run("create", name)
    die(client, name, "broken")
    assert sparrow_command("consume", f"{name}.dead").out == "body of broken\n"
    assert sparrow_command("queue", "describe", f"{name}.dead").code == 0
