"""Topics in a browser: the list, messages, search, live, publish, configuration, deletion."""

from __future__ import annotations

import re
from urllib.parse import quote

import confluent_kafka
import pytest

import sparrow.sync
from tests.console.chromium import Route, Tab, expect
from tests.console.site import MESSAGES, SCRIPT, Api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ALL = MESSAGES + 4


def test_list_of_topics_is_filtered_and_leads_to_a_topic(tab: Tab) -> None:
    page = tab.open("topics", "Topics")
    page.get_by_label("Name contains").fill("order")
    expect(page).to_have_url(re.compile(r"search=order"))
    expect(page.get_by_text("1 topic", exact=True)).to_be_visible()
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page).to_have_title("orders · Sparrow")
    page.go_back()
    expect(page.get_by_label("Name contains")).to_have_value("order")


def test_messages_come_newest_first_and_more_of_them_when_asked(tab: Tab) -> None:
    page = tab.open("topics/orders", "orders")
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("large")
    expect(page.get_by_text(f"searched 50 of {ALL}")).to_be_visible()
    more = page.get_by_role("button", name="load more")
    more.click()
    expect(rows).to_have_count(100)
    more.click()
    expect(rows).to_have_count(ALL)
    expect(page.get_by_text("These are all.")).to_be_visible()


def test_search_finds_by_key_text_and_header_and_its_address_can_be_shared(tab: Tab) -> None:
    page = tab.open("topics/orders", "orders")
    page.get_by_label("Key is").fill("customer-3")
    page.get_by_role("button", name="Search", exact=True).click()
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(17)
    expect(page.get_by_text(f"17 found, searched {ALL} of {ALL}")).to_be_visible()
    page.get_by_label("Text contains").fill('"order": 73')
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows).to_have_count(1)
    shared = page.url
    other = tab.context.new_page()
    other.goto(shared)
    expect(other.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(1)
    expect(other.get_by_label("Key is")).to_have_value("customer-3")
    page.goto(f"{tab.url}/ui/topics/orders?header=trace%3Dt5")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text('"order": 5')
    page.goto(f"{tab.url}/ui/topics/orders?contains=nowhere")
    expect(page.get_by_text("No message fits so far.")).to_be_visible()


def test_a_search_is_cancelled_and_goes_on(tab: Tab) -> None:
    """The broker answers with what it searched in a second; here each answer is held back."""
    page = tab.page
    held: list[Route] = []

    def answer(route: Route) -> None:
        if held or "contains" not in route.request.url:
            held.append(route)
            return
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "left": 60, "total": ALL, "next": "0:1"})
        held.append(route)

    page.route("**/v1/topics/orders/search*", answer)
    tab.open("topics/orders?contains=order%22%3A%207", "orders")
    expect(page.get_by_text(f"searched {ALL - 60} of {ALL}")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    page.unroute("**/v1/topics/orders/search*")
    with page.expect_request(lambda request: "from=0%3A1" in request.url):  # where it was left
        page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("These are all.")).to_be_visible()


def test_oldest_first_from_an_offset_of_one_partition(tab: Tab, api: Api) -> None:
    page = tab.open("topics/orders?order=oldest&at=offset&value=4&partition=1")
    offsets = page.get_by_role("table", name="Messages").locator("tbody tr td:nth-child(3)")
    expect(offsets.first).to_have_text("4")
    first = api.get("/v1/topics/orders/search?order=oldest&partition=1&from=4&limit=2")["messages"]
    expect(offsets.nth(1)).to_have_text(str(first[1]["offset"]))


def test_newest_first_from_a_time(tab: Tab, api: Api) -> None:
    """Messages of the days before, as an import writes them."""
    api.post("/v1/topics", {"name": "dated", "partitions": 1})
    day_ms = 86_400_000
    api.publish("dated", *({"value": f"day {day}", "timestamp_ms": day * day_ms} for day in (10, 11, 12)))
    page = tab.open("topics/dated", "dated")
    page.get_by_label("From").select_option("time")
    page.get_by_label("Time", exact=True).fill("1970-01-12T12:00:00")
    page.get_by_role("button", name="Search", exact=True).click()
    values = page.get_by_role("table", name="Messages").locator("tbody td:nth-child(5)")
    expect(values).to_have_text(["day 11", "day 10"])


def test_records_of_aborted_transactions_are_shown_or_hidden(tab: Tab, api: Api) -> None:
    settings = {"bootstrap.servers": api.broker.kafka, "transactional.id": "console"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(60)
    for value, end in (("given up", producer.abort_transaction), ("kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("transactional", value, partition=0)
        producer.flush(60)
        end(60)
    page = tab.open("topics/transactional", "transactional")
    values = page.get_by_role("table", name="Messages").locator("tbody td:nth-child(5)")
    expect(values).to_have_text(["kept", "given up"])
    page.get_by_label("Aborted").select_option("hidden")
    expect(page).to_have_url(re.compile("isolation=committed"))
    expect(values).to_have_text(["kept"])


def test_drawer_shows_json_binary_tombstones_and_large_values(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "files", "partitions": 1, "config": {"max.message.bytes": "2097152"}})
    api.publish("files", {"value": "x" * (1 << 20)})
    page = tab.open("topics/orders?key=customer-0", "orders")
    page.get_by_role("table", name="Messages").locator("tbody tr").last.click()
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_label("Value", exact=True)).to_contain_text('"order": 0,\n')
    expect(drawer.get_by_role("table", name="Headers")).to_contain_text("trace")
    drawer.get_by_role("button", name="hex").click()
    expect(drawer.get_by_label("Value", exact=True)).to_contain_text("00000000  7b 22 6f 72")
    drawer.get_by_role("button", name="Copy value").click()
    expect(drawer.get_by_text("Copied.")).to_be_visible()
    assert "order" in page.evaluate("navigator.clipboard.readText()")
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    tab.go("topics/files")
    page.get_by_role("table", name="Messages").locator("tbody tr").first.click()
    expect(drawer.get_by_text("Only the first 4.0 KiB of 1.0 MiB are shown.")).to_be_visible()
    drawer.get_by_role("button", name="Show all").click()
    expect(drawer.get_by_text("Only the first")).to_be_hidden()
    assert len(drawer.get_by_label("Value", exact=True).inner_text()) == 1 << 20
    page.keyboard.press("Escape")
    tab.go("topics/orders?key=gone")
    page.get_by_role("table", name="Messages").locator("tbody tr").first.click()
    expect(drawer.get_by_text("The value is null")).to_be_visible()
    page.keyboard.press("Escape")
    tab.go("topics/orders?header=raw")
    page.get_by_role("table", name="Messages").locator("tbody tr").first.click()
    expect(drawer.get_by_label("Value", exact=True)).to_contain_text("00 01 02 03 ff fe")
    with page.expect_download() as download:
        drawer.get_by_role("link", name="Download").click()
    with open(download.value.path(), "rb") as file:
        assert file.read() == b"\x00\x01\x02\x03\xff\xfe"


def test_live_shows_new_messages_on_top_and_keeps_them_while_paused(tab: Tab, api: Api) -> None:
    page = tab.open("topics/events?live=1", "events")
    rows = page.get_by_role("table", name="Live messages").locator("tbody tr")
    expect(page.get_by_text("Waiting for new messages")).to_be_visible()
    expect(page.get_by_text("New messages appear on top.")).to_be_visible()
    page.wait_for_function("performance.getEntriesByName(location.origin) !== null")
    api.publish("events", {"value": "first"})
    api.publish("events", {"value": "second"})
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("second")
    page.get_by_role("button", name="Pause").click()
    api.publish("events", {"value": "third"})
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Resume (1 new)").click()
    expect(rows.first).to_contain_text("third")


def test_publish_with_key_headers_partition_delay_priority_and_parents(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "written", "partitions": 3})
    page = tab.open("topics/written/publish", "written")
    page.get_by_role("textbox", name=re.compile("^Key")).fill("new-key")
    page.get_by_label("Partition").select_option("2")
    page.get_by_label("Value", exact=True).fill('{"hello": "you"}')
    page.get_by_role("button", name="Add header").click()
    page.get_by_label("Name of header 1").fill("source")
    page.get_by_label("Value of header 1").fill("console")
    page.get_by_text("For queues: delay, priority, parents").click()
    page.get_by_label("Delay (ms)").fill("5000")
    page.get_by_label("Priority (0 to 9)").fill("7")
    page.get_by_label("Message id").fill("m-1")
    page.get_by_label("Parents").fill("a, b")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text(re.compile(r"Published to partition 2 at offset \d+\."))).to_be_visible()
    (found,) = api.get("/v1/topics/written/search?key=new-key")["messages"]
    headers = dict(found["headers"])
    assert found["partition"] == 2
    assert found["value"] == '{"hello": "you"}'
    assert headers["source"] == "console"
    assert headers["priority"] == "7"
    assert headers["message-id"] == "m-1"
    assert int(headers["deliver-at"]) > found["timestamp_ms"]
    assert [value for name, value in found["headers"] if name == "parent-id"] == ["a", "b"]


def test_publish_again_and_edit_and_publish(tab: Tab, api: Api) -> None:
    api.publish("events", {"key": "twice", "value": "once", "headers": [["a", "b"]]})
    page = tab.open("topics/events?key=twice", "events")
    page.get_by_role("table", name="Messages").locator("tbody tr").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Publish again").click()
    expect(page.get_by_role("dialog").get_by_text("Published to partition 0")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Edit and publish").click()
    form = page.get_by_role("dialog", name="Edit and publish")
    expect(form.get_by_label("Value", exact=True)).to_have_value("once")
    form.get_by_label("Value", exact=True).fill("changed")
    form.get_by_role("button", name="Publish", exact=True).click()
    expect(form.get_by_text("Published to partition 0")).to_be_visible()
    found = api.get("/v1/topics/events/search?key=twice")["messages"]
    assert [each["value"] for each in found] == ["changed", "once", "once"]
    assert [each["headers"] for each in found] == [[["a", "b"]]] * 3


def test_a_refused_publish_is_said_in_words(tab: Tab) -> None:
    page = tab.open("topics/orders/publish", "orders")
    page.get_by_label("Value", exact=True).fill("not base64!")
    page.get_by_label("The value is base64 of bytes").check()
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("base64")


def test_configuration_is_changed_and_set_back(tab: Tab, api: Api) -> None:
    page = tab.open("topics/events/configuration", "events")
    rows = page.get_by_role("table", name="Configuration").locator("tbody tr")
    row = rows.filter(has=page.get_by_role("button", name="Change retention.ms", exact=True))
    row.get_by_role("button", name="Change retention.ms", exact=True).click()
    dialog = page.get_by_role("dialog", name="retention.ms")
    dialog.get_by_role("textbox").fill("nonsense")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("retention.ms")
    dialog.get_by_role("textbox").fill("3600000")
    dialog.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("3600000")
    expect(row).to_contain_text("topic")
    row.get_by_role("button", name="Change retention.ms", exact=True).click()
    dialog.get_by_role("button", name="Back to the default").click()
    expect(row).not_to_contain_text("3600000")


def test_partitions_are_added_and_readers_shown(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "small", "partitions": 1})
    page = tab.open("topics/small/partitions", "small")
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("4")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("table", name="Partitions").locator("tbody tr")).to_have_count(4)
    tab.go("topics/orders/readers")
    expect(page.get_by_role("table", name="Groups")).to_contain_text("billing")
    expect(page.get_by_role("table", name="Flows")).to_contain_text("shop / clean")
    tab.go("topics/jobs/readers")
    expect(page.get_by_role("table", name="Queues")).to_contain_text("jobs")


def test_a_topic_is_created_and_deleted_by_its_name(tab: Tab, api: Api) -> None:
    page = tab.open("topics", "Topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("dialog").get_by_label("Name").fill("fresh")
    page.get_by_role("dialog").get_by_label("Partitions").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("fresh")
    api.publish("fresh", {"value": "a"}, {"value": "b"})
    page.reload()
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("dialog").get_by_text("2 messages")).to_be_visible()
    tab.confirm("fresh", "Delete topic")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert api.call("GET", "/v1/topics/fresh")[0] == 404


def test_a_deletion_is_refused_when_the_topic_is_another_one_meanwhile(tab: Tab, api: Api) -> None:
    """The page behind the dialog goes on, and shows the new topic before the button is pressed."""
    api.post("/v1/topics", {"name": "swapped", "partitions": 1})
    page = tab.open("topics/swapped/partitions", "swapped")
    page.get_by_role("button", name="Delete topic").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("0 messages (0 B) in 1 partition will be lost")).to_be_visible()
    api.call("DELETE", "/v1/topics/swapped")
    api.post("/v1/topics", {"name": "swapped", "partitions": 2, "config": {"retention.ms": "3600000"}})
    api.publish("swapped", {"value": "new"})
    expect(page.get_by_role("table", name="Partitions", include_hidden=True)).to_contain_text("1")
    tab.poll("/v1/topics/swapped")
    expect(
        page.get_by_role("table", name="Partitions", include_hidden=True).locator("tbody tr")
    ).to_have_count(2)
    expect(dialog.get_by_text("0 messages (0 B) in 1 partition will be lost")).to_be_visible()
    tab.confirm("swapped", "Delete topic")
    tab.is_changed(
        "swapped",
        "it was deleted, and another one of this name was made",
        "messages: 0 → 1",
        "partitions: 1 → 2",
        "retention.ms: 604800000 → 3600000",
    )
    assert api.get("/v1/topics/swapped")["partition_count"] == 2
    expect(dialog.get_by_text("1 message ")).to_be_visible()
    tab.confirm("swapped", "Delete topic")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert api.call("GET", "/v1/topics/swapped")[0] == 404


def test_a_dialog_about_a_topic_that_is_gone_says_so(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "vanished", "partitions": 1})
    page = tab.open("topics/vanished", "vanished")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("dialog").get_by_text("0 messages")).to_be_visible()
    api.call("DELETE", "/v1/topics/vanished")
    tab.confirm("vanished", "Delete topic")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("vanished")


def test_records_are_truncated_by_the_name_with_their_number(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "full", "partitions": 1})
    api.publish("full", *({"value": str(i)} for i in range(9)))
    page = tab.open("topics/full/partitions", "full")
    page.get_by_role("button", name="Delete all messages").click()
    expect(page.get_by_role("dialog").get_by_text("9 messages")).to_be_visible()
    tab.confirm("full", "Delete messages")
    expect(page.get_by_text("0 messages, ")).to_be_visible()
    assert api.get("/v1/topics/full/search")["messages"] == []


def test_scripts_in_names_keys_values_headers_stay_text(tab: Tab) -> None:
    page = tab.open("topics/orders?contains=onerror", "orders")
    expect(page.get_by_role("table", name="Messages")).to_contain_text(SCRIPT)
    page.get_by_role("table", name="Messages").locator("tbody tr", has_text="<script>").first.click()
    drawer = page.get_by_role("dialog")
    expect(drawer).to_contain_text(SCRIPT)
    assert page.locator("main script, dialog script, main img, dialog img").count() == 0


def test_scripts_in_names_of_queues_groups_pipelines_and_errors_stay_text(tab: Tab, api: Api) -> None:
    name = "<img src=x onerror=alert(3)>"
    api.post("/v1/queues", {"name": name, "topics": ["events"], "policy": {"dead_letter_topic": None}})
    rule = {"resource_type": "Topic", "name": name, "principal": f"User:{name}", "operation": "Read"}
    api.post("/v1/acls", {"rules": [rule]})
    quota = {"entity": {"client-id": name}, "values": {"producer_byte_rate": 1e9}}
    assert api.call("PATCH", "/v1/quotas", quota)[0] == 204
    offsets = [{"topic": "events", "partition": 0, "offset": 0}]
    assert api.call("PUT", f"/v1/groups/{quote(name)}/offsets", {"offsets": offsets})[0] == 204
    probe = sparrow.sync.connect(api.broker.url, client_name=f"probe {name}")
    page = tab.open("", "Overview")
    for path, words in (
        ("queues", name),
        (f"queues/{quote(name)}", name),
        (f"queues/{quote(name)}/records", name),
        ("groups", name),
        (f"groups/{quote(name)}", name),
        ("topics/events/readers", name),
        ("pipelines", SCRIPT),
        ("queues/jobs/dead-letters", SCRIPT),
        ("", SCRIPT),
        ("access", f"User:{name}"),
        ("access/quotas", name),
        ("settings/log", name),
        ("connections", f"probe {name}"),
        (f"topics/{quote(name)}", name),
        (f"topics?search={quote(name)}", f"the pattern '*{name}*' may only have"),
    ):
        tab.go(path)
        expect(page.locator("main")).to_contain_text(words)
        assert page.locator("main img, main script").count() == 0, path
    probe.close()
    api.call("DELETE", f"/v1/queues/{quote(name)}")
