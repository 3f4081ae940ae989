"""Queues in a browser: state, records, dead letters, parents, policy, webhooks, purge, deletion."""

from __future__ import annotations

import json
import re

import pytest

import sparrow.sync
from tests.console.chromium import Tab, expect
from tests.console.site import JOBS, REJECTED, SCRIPT, Api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DEAD = sum(REJECTED.values())


def kill(api: Api, queue: str, count: int, error: str, before: int = 0) -> None:
    """Make dead letters of a queue, which is created if none were `before`."""
    if not before:
        api.post("/v1/queues", {"name": queue, "partitions": 1})
    api.publish(queue, *({"value": f"{queue} {i}"} for i in range(count)))
    with sparrow.sync.connect(api.broker.url) as client, client.queue(queue) as jobs:
        left = count
        while left:
            leased = jobs.lease(left)
            left -= len(leased)
            for job in leased:
                job.reject(error)
    while api.get(f"/v1/queues/{queue}")["statistics"]["dead"] < before + count:
        pass


def test_list_shows_states_and_leads_to_dead_letters(tab: Tab) -> None:
    page = tab.open("queues", "Queues")
    row = page.get_by_role("table", name="Queues").locator("tbody tr", has_text="jobs").first
    expect(row).to_contain_text(f"{JOBS - DEAD} ready")
    tab.go("queues/jobs")
    for title in ("Jobs per second", "Unfinished"):
        expect(page.get_by_role("figure").filter(has_text=title)).to_be_visible()
    tab.go("queues")
    row.get_by_role("link", name=str(DEAD)).click()
    expect(page).to_have_url(re.compile("/ui/queues/jobs/dead-letters$"))


def test_a_queue_is_created_paused_and_resumed(tab: Tab, api: Api) -> None:
    page = tab.open("queues", "Queues")
    page.get_by_role("button", name="Create queue").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("made-here")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("made-here")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert api.get("/v1/queues/made-here")["is_paused"] is True
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_records_are_shown_by_state(tab: Tab) -> None:
    page = tab.open("queues/jobs/records", "jobs")
    rows = page.get_by_role("table", name="Records").locator("tbody tr")
    expect(rows).to_have_count(JOBS - DEAD)
    page.get_by_label("State").select_option("delayed")
    expect(page.get_by_text("No record is in this state.")).to_be_visible()
    page.get_by_label("State").select_option("ready")
    rows.first.click()
    expect(page.get_by_role("dialog")).to_contain_text("job 12")
    page.keyboard.press("Escape")
    tab.go("queues/family/records?state=blocked")
    expect(page.get_by_role("table", name="Records").locator("tbody tr")).to_have_count(2)


def test_consumers_are_shown_with_their_leases(tab: Tab, api: Api) -> None:
    api.post("/v1/queues", {"name": "held", "partitions": 1})
    api.publish("held", *({"value": str(i)} for i in range(4)))
    with sparrow.sync.connect(api.broker.url, client_name="worker-7") as client, client.queue("held") as jobs:
        leased = jobs.lease(3)
        assert len(leased) == 3
        page = tab.open("queues/held/consumers", "held")
        row = page.get_by_role("table", name="Consumers").locator("tbody tr")
        expect(row).to_contain_text("worker-7")
        expect(row.locator("td").last).to_have_text("3")
        tab.go("queues/held/records?state=leased")
        expect(page.get_by_role("table", name="Records").locator("tbody tr")).to_have_count(3)
        tab.go("queues")
        expect(page.get_by_role("row", name="held")).to_contain_text("1 ready, 3 leased")
        for job in leased:
            job.ack()
    tab.go("queues/held/consumers")
    expect(page.get_by_text("Nobody takes from this queue now.")).to_be_visible()


def test_parents_are_a_graph_and_a_table(tab: Tab) -> None:
    page = tab.open("queues/family/parents", "family")
    graph = page.get_by_role("img", name="Records and their parents, 3 nodes")
    expect(graph).to_be_visible()
    assert graph.locator("path").count() == 2
    expect(page.get_by_role("table", name="Records with parents")).to_contain_text("p1 (ready)")
    expect(page.get_by_role("table", name="Records with parents")).to_contain_text("blocked")


def test_dead_letters_are_grouped_by_reason_and_error(tab: Tab) -> None:
    page = tab.open("queues/jobs/dead-letters", "jobs")
    groups = page.get_by_role("table", name="Dead letters by reason and error").locator("tbody tr")
    expect(groups).to_have_count(2)
    expect(groups.first).to_contain_text("no such customer")
    expect(groups.first).to_contain_text("8")
    expect(groups.nth(1)).to_contain_text(SCRIPT)
    letters = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    expect(letters).to_have_count(DEAD)
    groups.nth(1).get_by_role("button", name="Only these").click()
    expect(letters).to_have_count(4)
    expect(page.get_by_role("button", name="Redrive all of this kind")).to_be_visible()


def test_a_selection_survives_paging_and_is_redriven_with_a_count(tab: Tab, api: Api) -> None:
    kill(api, "paged", 70, "broken")
    page = tab.open("queues/paged/dead-letters", "paged")
    letters = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    expect(letters).to_have_count(50)
    letters.nth(0).get_by_role("checkbox").check()
    letters.nth(1).get_by_role("checkbox").check()
    page.get_by_role("button", name="Next").click()
    expect(letters).to_have_count(20)
    letters.nth(0).get_by_role("checkbox").check()
    expect(page.get_by_text("3 selected, on all pages")).to_be_visible()
    page.get_by_role("button", name="Redrive 3 selected messages").click()
    expect(page.get_by_text("Redrive ended: 3 sent back")).to_be_visible()
    expect(page.get_by_role("button", name="Redrive all")).to_be_visible()
    tab.go("queues/paged")
    expect(page.get_by_text("3 ready")).to_be_visible()
    assert api.get("/v1/queues/paged")["statistics"]["dead"] == 67


def test_a_redrive_shows_its_progress_and_is_stopped(tab: Tab, api: Api) -> None:
    kill(api, "stopped", 5, "broken")
    api.post("/v1/queues/stopped/redrive", {"per_second": 0.001})  # started by somebody else
    page = tab.open("queues/stopped/dead-letters", "stopped")
    expect(page.get_by_text("Redrive runs: 1 sent back.")).to_be_visible()
    expect(page.get_by_role("button", name="Redrive all")).to_be_disabled()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Redrive ended: 1 sent back.")).to_be_visible()
    expect(page.get_by_role("button", name="Redrive all")).to_be_enabled()
    assert api.get("/v1/queues/stopped/redrive")["is_running"] is False
    assert api.get("/v1/queues/stopped")["statistics"]["dead"] == 4


def test_one_dead_letter_is_redriven_from_its_drawer_and_seen_at_once(tab: Tab, api: Api) -> None:
    kill(api, "single", 3, "odd")
    page = tab.open("queues/single/dead-letters", "single")
    letters = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    letters.first.locator("button").click()
    drawer = page.get_by_role("dialog")
    expect(drawer).to_contain_text("rejected")
    expect(drawer).to_contain_text("single/0 @ 0")
    drawer.get_by_role("button", name="Redrive this one").click()
    expect(letters).to_have_count(2)
    expect(page.get_by_text("Sent back.")).to_be_visible()


def test_dead_letters_are_purged_by_the_name_and_exported(tab: Tab, api: Api) -> None:
    kill(api, "purged", 5, "bad")
    page = tab.open("queues/purged/dead-letters", "purged")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    with open(download.value.path()) as file:
        exported = [json.loads(line) for line in file]
    assert [each["value"] for each in exported] == [f"purged {i}" for i in range(5)]
    assert {each["error"] for each in exported} == {"bad"}
    letters = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    letters.nth(2).get_by_role("checkbox").check()
    page.get_by_role("button", name="Purge 1 selected message").click()
    tab.confirm("purged", "Purge")
    expect(page.get_by_text("1 dead letter purged.")).to_be_visible()
    expect(letters).to_have_count(4)
    page.get_by_role("button", name="Purge all").click()
    expect(page.get_by_role("dialog").get_by_text("4 dead letters")).to_be_visible()
    tab.confirm("purged", "Purge")
    expect(page.get_by_text("No dead letters: nothing was given up.")).to_be_visible()
    assert api.get("/v1/queues/purged")["statistics"]["dead"] == 0


def test_policy_is_changed(tab: Tab, api: Api) -> None:
    page = tab.open("queues/emails/policy", "emails")
    row = page.get_by_role("row", name="lease_ms")
    expect(row).to_contain_text("Time that a consumer has for a record before others get it.")
    expect(row.get_by_role("cell")).to_contain_text(["lease_ms", "30s", "30s", "Change"])
    page.get_by_role("button", name="Change delivery_limit").click()
    dialog = page.get_by_role("dialog", name="delivery_limit")
    dialog.get_by_role("textbox").fill("-5")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("delivery_limit")
    dialog.get_by_role("textbox").fill("9")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="delivery_limit")).to_contain_text("9 set")
    assert api.get("/v1/queues/emails")["policy"]["delivery_limit"] == 9


def test_webhooks_are_added_paused_rotated_and_deleted(tab: Tab, api: Api) -> None:
    page = tab.open("queues/emails/webhooks", "emails")
    table = page.get_by_role("table", name="Webhooks")
    expect(table).to_contain_text("hook")
    page.get_by_role("button", name="Add webhook").click()
    dialog = page.get_by_role("dialog", name="Add webhook")
    dialog.get_by_label("Name").fill("second")
    dialog.get_by_label("Address").fill("http://127.0.0.1:9/second")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_text("whsec_")).to_be_visible()
    dialog.get_by_role("button", name="Close").last.click()
    table.get_by_role("button", name="second").click()
    drawer = page.get_by_role("dialog", name="second")
    drawer.get_by_role("button", name="Pause").click()
    expect(drawer.get_by_role("button", name="Resume")).to_be_visible()
    drawer.get_by_role("button", name="Rotate secret").click()
    expect(drawer.get_by_text("whsec_")).to_be_visible()
    drawer.get_by_role("button", name="Delete webhook").click()
    tab.confirm("second", "Delete webhook")
    expect(table).not_to_contain_text("second")
    assert [each["name"] for each in api.get("/v1/queues/emails/subscribers")["subscribers"]] == ["hook"]


def test_a_failing_webhook_says_why(tab: Tab, api: Api) -> None:
    api.publish("emails", {"value": "nobody listens"})
    page = tab.open("queues/emails/webhooks", "emails")
    expect(page.get_by_role("table", name="Webhooks").locator("tbody tr")).to_contain_text(
        re.compile("refused|failed|connect", re.IGNORECASE)
    )


def test_a_queue_is_purged_and_deleted_with_its_numbers(tab: Tab, api: Api) -> None:
    api.post("/v1/queues", {"name": "leaving", "partitions": 1})
    api.publish("leaving", *({"value": str(i)} for i in range(6)))
    page = tab.open("queues/leaving", "leaving")
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog").get_by_text("6 jobs")).to_be_visible()
    tab.confirm("leaving", "Purge")
    expect(page.get_by_text("empty")).to_be_visible()
    page.get_by_role("button", name="Delete queue").click()
    tab.confirm("leaving", "Delete queue")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert api.call("GET", "/v1/queues/leaving")[0] == 404


def test_a_purge_is_refused_when_far_more_is_there_than_was_shown(tab: Tab, api: Api) -> None:
    api.post("/v1/queues", {"name": "grown", "partitions": 1})
    api.publish("grown", {"value": "one"})
    page = tab.open("queues/grown", "grown")
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("1 job")).to_be_visible()
    api.publish("grown", *({"value": str(i)} for i in range(500)))
    expect(page.locator("main .states")).to_have_text("501 ready")  # the page goes on, the dialog stays
    expect(dialog.get_by_text("1 job")).to_be_visible()
    tab.confirm("grown", "Purge")
    tab.is_changed("grown", "unfinished: 1 → 501")
    assert api.get("/v1/queues/grown")["statistics"]["unfinished"] == 501
    expect(dialog.get_by_text("501 jobs")).to_be_visible()


def test_dead_letters_that_come_while_a_dialog_asks_are_not_purged(tab: Tab, api: Api) -> None:
    kill(api, "dying", 3, "first")
    page = tab.open("queues/dying/dead-letters", "dying")
    page.get_by_role("button", name="Purge all").click()
    expect(page.get_by_role("dialog").get_by_text("3 dead letters")).to_be_visible()
    kill(api, "dying", 2, "second", before=3)
    tab.confirm("dying", "Purge")
    expect(page.get_by_text("3 dead letters purged.")).to_be_visible()
    letters = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    expect(letters).to_have_count(2)
    page.get_by_role("button", name="Only these").click()
    page.get_by_role("button", name="Purge all of this kind").click()
    expect(page.get_by_role("dialog").get_by_text("2 dead letters of this kind")).to_be_visible()
    tab.confirm("dying", "Purge")
    expect(page.get_by_text("2 dead letters purged.")).to_be_visible()


def test_a_webhook_is_not_deleted_when_it_is_another_one_meanwhile(tab: Tab, api: Api) -> None:
    path = "/v1/queues/family/subscribers/moved"
    assert api.call("PUT", path, {"url": "http://127.0.0.1:9/old"})[0] == 200
    page = tab.open("queues/family/webhooks", "family")
    page.get_by_role("button", name="moved").click()
    page.get_by_role("button", name="Delete webhook").click()
    expect(page.get_by_role("dialog").last.get_by_text("Nothing is delivered to")).to_be_visible()
    api.call("PUT", path, {"url": "http://127.0.0.1:9/new"})
    tab.poll("/v1/queues/family/subscribers")
    tab.confirm("moved", "Delete webhook")
    tab.is_changed("moved", "url: http://127.0.0.1:9/old → http://127.0.0.1:9/new")
    tab.confirm("moved", "Delete webhook")
    expect(page.get_by_text("No webhook: consumers take from this queue themselves.")).to_be_visible()
    assert api.call("GET", path)[0] == 404
