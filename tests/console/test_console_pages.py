"""The other pages in a browser: overview, groups, pipelines, access, connections, settings."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import sparrow.sync
from sparrow import testing
from sparrow.testing.running_broker import RunningBroker
from tests.console.chromium import Tab, expect
from tests.console.site import SCRIPT, Api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def commit(api: Api, group: str, offset: int) -> None:
    offsets = [{"topic": "orders", "partition": 0, "offset": offset}]
    assert api.call("PUT", f"/v1/groups/{group}/offsets", {"offsets": offsets})[0] == 204


def test_overview_shows_readiness_and_things_that_need_attention(tab: Tab, api: Api) -> None:
    page = tab.open("", "Overview")
    expect(page.get_by_text("Ready")).to_be_visible()
    for figure in ("Messages in", "Jobs unfinished", "Dead letters", "Disk free", "Sync p50 / p99"):
        expect(page.locator("dt", has_text=figure)).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("12 new dead letters"))).to_be_visible()
    expect(
        page.get_by_text(re.compile("Flow load of pipeline shop failed: no table <script>"))
    ).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("things need attention"))).to_be_visible()
    page.get_by_role("link", name=re.compile("new dead letters")).click()
    expect(page).to_have_url(re.compile("/ui/queues/jobs/dead-letters$"))


def test_overview_counts_publishes_live(tab: Tab, api: Api) -> None:
    page = tab.open("", "Overview")
    expect(page.locator(".figure", has_text="Messages in")).to_contain_text("0/s")
    api.publish("events", *({"value": "x"} for _ in range(50)))
    expect(page.locator(".figure", has_text="Messages in").locator("dd")).not_to_contain_text(
        re.compile("^0/s")
    )
    spoken = page.get_by_role("status").filter(has_text="messages per second in")
    expect(spoken).to_have_class("sr")


def test_history_is_charts_that_are_tables_too(tab: Tab, broker: RunningBroker) -> None:
    page = tab.open("", "Overview")
    chart = page.get_by_role("figure").filter(has_text="Messages per second")
    expect(chart.get_by_role("img")).to_be_visible()
    chart.get_by_text("As a table").click()
    expect(chart.get_by_role("table")).to_contain_text("/s")
    page.get_by_role("button", name="24h").click()
    expect(page).to_have_url(re.compile("span=24h"))
    expect(page.get_by_text("a restart of the broker loses it")).to_be_visible()


def test_groups_show_lag_and_members(tab: Tab) -> None:
    page = tab.open("groups", "Groups")
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_text(re.compile("empty classic group, 0 members, lag 1"))).to_be_visible()
    expect(page.get_by_role("table", name="Offsets").locator("tbody tr")).to_have_count(3)


def test_a_group_with_members_shows_them_and_is_not_reset(tab: Tab, api: Api) -> None:
    commit(api, "live", 3)
    with (
        sparrow.sync.connect(api.broker.url, client_name="reader-1") as client,
        client.subscribe("orders", group="live", start="beginning") as subscription,
    ):
        next(iter(subscription))  # it is a member
        page = tab.open("groups/live", "live")
        members = page.get_by_role("table", name="Members").locator("tbody tr")
        expect(members).to_contain_text(["reader-1"])
        for partition in range(3):
            expect(members).to_contain_text(f"orders/{partition}")
        expect(page.get_by_text(re.compile("stable sparrow group, 1 member, lag"))).to_be_visible()
        page.get_by_role("button", name="Reset").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("The group has members")).to_be_visible()
        dialog.get_by_role("combobox", name="To", exact=True).select_option("beginning")
        dialog.get_by_role("button", name="Go on").click()
        tab.confirm("live", "Reset")
        expect(dialog.get_by_role("alert")).to_contain_text("member")
        page.keyboard.press("Escape")
        tab.go("groups")
        expect(page.get_by_role("row", name="live")).to_contain_text("stable")
    tab.go("groups/live")
    expect(page.get_by_text("No member: nobody reads now.")).to_be_visible()
    assert api.get("/v1/groups/live/offsets")["offsets"][0]["offset"] == 3


def test_the_list_of_groups_says_whether_lags_grow(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "trend", "partitions": 1})

    def commit_to(offset: int) -> None:
        offsets = [{"topic": "trend", "partition": 0, "offset": offset}]
        assert api.call("PUT", "/v1/groups/slow/offsets", {"offsets": offsets})[0] == 204

    api.publish("trend", *({"value": str(i)} for i in range(5)))
    commit_to(0)
    page = tab.open("groups?search=slow", "Groups")
    row = page.get_by_role("row", name="slow")
    expect(row).to_contain_text("steady")
    api.publish("trend", *({"value": str(i)} for i in range(7)))
    expect(row).to_contain_text("grows (+7)")
    commit_to(12)
    expect(row).to_contain_text("shrinks (-5)")


def test_a_group_is_reset_to_a_time(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "dated", "partitions": 1})
    day_ms = 86_400_000
    api.publish("dated", *({"value": f"day {day}", "timestamp_ms": day * day_ms} for day in (10, 11, 12)))
    offsets = [{"topic": "dated", "partition": 0, "offset": 0}]
    assert api.call("PUT", "/v1/groups/days/offsets", {"offsets": offsets})[0] == 204
    page = tab.open("groups/days", "days")
    page.get_by_role("button", name="Reset").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="To", exact=True).select_option("time")
    dialog.get_by_label("Time", exact=True).fill("1970-01-12T12:00:00")
    expect(dialog.get_by_role("table", name="What moves")).to_contain_text("2 skipped")
    dialog.get_by_role("button", name="Go on").click()
    expect(dialog.get_by_text("2 messages will be skipped")).to_be_visible()
    tab.confirm("days", "Reset")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert api.get("/v1/groups/days/offsets")["offsets"][0]["offset"] == 2


def test_a_group_is_reset_with_a_preview(tab: Tab, api: Api) -> None:
    api.call(
        "PUT", "/v1/groups/moved/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 9}]}
    )
    page = tab.open("groups/moved", "moved")
    page.get_by_role("button", name="Reset").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="To", exact=True).select_option("beginning")
    expect(dialog.get_by_text("9 messages will be read again")).to_be_visible()
    dialog.get_by_role("combobox", name="To", exact=True).select_option("back")
    dialog.get_by_label("n", exact=True).fill("2")
    end = api.get("/v1/topics/orders")["partitions"][0]["end_offset"]
    expect(dialog.get_by_role("table", name="What moves")).to_contain_text(f"{end - 11} skipped")
    dialog.get_by_role("combobox", name="To", exact=True).select_option("offset")
    dialog.get_by_label("Offset", exact=True).fill("4")
    expect(dialog.get_by_role("table", name="What moves")).to_contain_text("5 read again")
    dialog.get_by_role("button", name="Go on").click()
    tab.confirm("moved", "Reset")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert api.get("/v1/groups/moved/offsets")["offsets"][0]["offset"] == 4


def test_a_reset_is_refused_when_the_group_moved_meanwhile(tab: Tab, api: Api) -> None:
    api.call(
        "PUT", "/v1/groups/busy/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 5}]}
    )
    page = tab.open("groups/busy", "busy")
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("dialog").get_by_role("button", name="Go on").click()
    expect(page.get_by_role("dialog").get_by_text("will be skipped")).to_be_visible()
    api.call(
        "PUT", "/v1/groups/busy/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 6}]}
    )
    tab.poll("/v1/groups/busy")
    tab.confirm("busy", "Reset")
    tab.is_changed("busy", "offset of orders/0: 5 → 6")
    assert api.get("/v1/groups/busy/offsets")["offsets"][0]["offset"] == 6


def test_a_group_is_deleted_by_its_name(tab: Tab, api: Api) -> None:
    api.call(
        "PUT", "/v1/groups/gone/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
    )
    page = tab.open("groups/gone", "gone")
    page.get_by_role("button", name="Delete group").click()
    expect(page.get_by_role("dialog").get_by_text("1 committed offset")).to_be_visible()
    tab.confirm("gone", "Delete group")
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")


def test_pipelines_are_a_graph_with_states_rates_and_errors(tab: Tab, api: Api) -> None:
    page = tab.open("pipelines", "Pipelines")
    expect(page.get_by_role("img", name="Flows of shop, 4 nodes")).to_be_visible()
    table = page.get_by_role("table", name="Flows of shop")
    expect(table).to_contain_text("42.5/s")
    expect(table).to_contain_text(f"no table {SCRIPT}")
    expect(table).to_contain_text("warehouse.orders")
    words = page.get_by_role("region", name="Flows of shop").first.locator("text")
    for said in ("lag 7", "42.5/s, 3 refused", "flow, running", "flow, failed"):
        expect(words.get_by_text(said, exact=True).first).to_be_visible()
    expect(table.get_by_role("row", name="clean")).to_contain_text("3")
    with sparrow.sync.connect(api.broker.url) as client:
        stage = {"sink": "lake", "query": "q1", "run": "r1", "batch": 0, "timeout_ms": 600_000}
        client._background.run(client.admin._inner._change("sink.stage", stage))
        sinks = page.get_by_role("table", name="Sinks")
        expect(sinks.get_by_role("row", name="lake")).to_contain_text("q1")
        sinks.get_by_role("button", name="lake").click()
        dialog = page.get_by_role("dialog", name="lake")
        expect(dialog).to_contain_text("r1")
        expect(dialog.get_by_role("table").locator("tbody tr")).to_have_count(1)


def test_schedules_are_added_run_paused_and_deleted(tab: Tab) -> None:
    page = tab.open("schedules", "Schedules")
    page.get_by_role("button", name="Add schedule").click()
    dialog = page.get_by_role("dialog", name="Add schedule")
    for label, text in {"Name": "nightly", "Queue": "emails", "Cron line": "0 0 30 2 *"}.items():
        dialog.get_by_label(label).fill(text)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog).to_contain_text("never be due")
    dialog.get_by_label("Cron line").fill("30 2 * * *")
    dialog.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="nightly").click()
    shown = page.get_by_role("dialog", name="nightly")
    expect(shown.get_by_role("listitem")).to_have_count(5)
    shown.get_by_role("button", name="Run now").click()
    expect(shown).to_contain_text("1, 0 skipped, 0 failed")
    shown.get_by_role("button", name="Pause").click()
    expect(shown).to_contain_text("None: it is paused.")
    shown.get_by_role("button", name="Delete schedule").click()
    tab.confirm("nightly", "Delete schedule")
    expect(page.get_by_text("No schedule: nothing publishes jobs at certain times.")).to_be_visible()


def test_rules_are_added_shown_as_a_matrix_tested_and_removed(tab: Tab, api: Api) -> None:
    page = tab.open("access", "Access")
    page.get_by_role("button", name="Add rule").click()
    dialog = page.get_by_role("dialog", name="Add rule")
    dialog.get_by_label("Principal").fill("User:billing")
    dialog.get_by_label("Operation").select_option("Write")
    dialog.get_by_label("Name").fill("invoices")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("table", name="Who may do what")).to_contain_text("✓ Write")
    page.get_by_role("textbox", name="Who").fill("User:billing")
    page.get_by_role("combobox", name="Does").select_option("Write")
    page.get_by_role("textbox", name="Named").fill("invoices")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("Yes: by the rule “User:billing may Write Topic invoices.”")).to_be_visible()
    page.get_by_role("combobox", name="Does").select_option("Delete")
    page.get_by_role("button", name="Ask").click()
    expect(
        page.get_by_text("No: there are rules for the resource, and none of them allows this.")
    ).to_be_visible()
    page.get_by_role("button", name="Remove rule 1").click()
    tab.confirm("User:billing", "Remove rule")
    expect(page.get_by_text("There are no rules: the defaults decide.")).to_be_visible()
    assert api.get("/v1/acls")["rules"] == []


def test_quotas_are_set_and_removed(tab: Tab, api: Api) -> None:
    page = tab.open("access/quotas", "Access")
    expect(page.get_by_text("No quota: nobody is slowed down.")).to_be_visible()
    page.get_by_role("button", name="Set quota").click()
    dialog = page.get_by_role("dialog", name="Quota")
    dialog.get_by_label("Name").fill("ann")
    dialog.get_by_label("Publish, bytes per second").fill("1000000")
    dialog.get_by_role("button", name="Save").click()
    table = page.get_by_role("table", name="Quotas")
    expect(table).to_contain_text("user ann")
    expect(table).to_contain_text("producer_byte_rate = 1,000,000")
    assert api.get("/v1/quotas")["quotas"] == [
        {"entity": {"user": "ann"}, "values": {"producer_byte_rate": 1_000_000}}
    ]
    page.get_by_role("button", name="Change").click()
    dialog.get_by_label("Publish, bytes per second").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("No quota: nobody is slowed down.")).to_be_visible()
    assert api.get("/v1/quotas")["quotas"] == []


def test_connections_are_listed_and_closed(tab: Tab, broker: RunningBroker) -> None:
    with sparrow.sync.connect(broker.url, client_name="probe") as client:
        page = tab.open("connections", "Connections")
        row = page.get_by_role("table", name="Connections").locator("tbody tr", has_text="native")
        expect(row).to_contain_text("probe")
        number = row.locator("td").first.inner_text()
        row.get_by_role("button").click()
        expect(page.get_by_role("button", name=f"Close connection {number}", exact=True)).to_have_count(0)
        assert client.admin.describe_broker().version  # it has connected again


def test_options_have_their_sources_and_the_log_its_last_lines(open_tab: Callable[..., Tab]) -> None:
    with testing.broker(
        process=True, tokens={"ann": "secret-token"}, http_login="off", super_users="ANONYMOUS"
    ) as running:
        tab = open_tab(running)
        page = tab.open("settings", "Settings")
        table = page.get_by_role("table", name="Options")
        expect(table.get_by_role("row", name=re.compile("^tokens "))).to_contain_text("(hidden)")
        page.get_by_label("Show").select_option("those that are set")
        page.get_by_label("Option contains").fill("http.login")
        expect(table.locator("tbody tr")).to_have_count(1)
        expect(table).to_contain_text("sparrow.yml")
        assert "secret-token" not in page.content()
        page.get_by_role("button", name="Load the configuration again").click()
        expect(page.get_by_text("Loaded again")).to_be_visible()
        for name, path in (("API", "/docs"), ("Metrics", "/metrics")):
            expect(page.get_by_role("link", name=name)).to_have_attribute("href", path)
        page.get_by_role("link", name="Log", exact=True).click()
        expect(page.get_by_role("table", name="Log, newest first")).to_contain_text("broker.reload")


def test_an_address_without_a_page_says_so_and_leads_back(tab: Tab) -> None:
    page = tab.open("nonsense/at/all")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    page.get_by_role("link", name="To the overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    tab.go("topics/missing")
    expect(page.get_by_role("alert").first).to_contain_text("missing")
