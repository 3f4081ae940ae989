"""Every page in both themes and two widths: accessible by axe-core, nothing too wide; and the
pictures of the documents.

The pictures are written to `docs/pictures/` when `SPARROW_PICTURES=1` is set, so that a test run
changes no file otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sparrow import testing
from sparrow.testing.running_broker import RunningBroker
from tests.console.chromium import DESKTOP, PHONE, Axe, BrowserContext, Page, Tab, expect
from tests.console.site import Api, fill, report_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PAGES = {
    "overview": "",
    "topics": "topics",
    "messages": "topics/orders",
    "partitions": "topics/orders/partitions",
    "readers": "topics/orders/readers",
    "configuration": "topics/orders/configuration",
    "publish": "topics/orders/publish",
    "queues": "queues",
    "queue": "queues/jobs",
    "records": "queues/jobs/records",
    "dead-letters": "queues/jobs/dead-letters",
    "parents": "queues/family/parents",
    "policy": "queues/jobs/policy",
    "webhooks": "queues/emails/webhooks",
    "groups": "groups",
    "group": "groups/billing",
    "schedules": "schedules",
    "pipelines": "pipelines",
    "access": "access",
    "users": "access/users",
    "quotas": "access/quotas",
    "connections": "connections",
    "settings": "settings?search=http.",
    "log": "settings/log",
}
SHOWN = ("overview", "messages", "dead-letters", "queue", "pipelines")
"""Pages of which there are pictures."""
LOOKS = [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)]
IDS = [f"{theme}-{size['width']}" for theme, size in LOOKS]


def picture(page: Page, name: str) -> None:
    if os.environ.get("SPARROW_PICTURES") == "1":
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}.png")


@contextmanager
def broker_for_pictures() -> Iterator[RunningBroker]:
    with testing.broker(process=True, webhooks_allow="private") as running:
        fill(running, text="card declined")
        report_pipeline(running, text="warehouse.orders")
        rule = {"resource_type": "Topic", "name": "unused", "principal": "User:ann", "operation": "Read"}
        Api(running).post("/v1/acls", {"rules": [rule]})
        yield running


@pytest.fixture(scope="module")
def starting_broker() -> Iterator[Future[RunningBroker]]:
    """A broker whose data is fit for pictures."""
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        yield pool.submit(stack.enter_context, broker_for_pictures())


ALL_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}, "resultTypes": ["violations"]}
BUT_COLOURS = {**ALL_RULES, "rules": {"color-contrast": {"enabled": False}}}
RULES = {"light-1280": ALL_RULES, "dark-1280": COLOURS, "light-390": BUT_COLOURS, "dark-390": None}
"""Rules of axe-core by look: colours are those of the theme, and layout is that of the width."""


@pytest.fixture(scope="module")
def inspected(profile: BrowserContext, broker: RunningBroker) -> Iterator[Tab]:
    """A tab with axe-core, in which one page after the other is shown."""
    tab = Tab(profile, broker.http.rstrip("/"))
    tab.open("", "Overview")
    tab.page.evaluate(Axe().axe_script)
    yield tab
    tab.page.close()
    tab.check()


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=IDS)
def test_no_page_has_a_serious_fault_or_is_too_wide(inspected: Tab, theme: str, size: dict[str, int]) -> None:
    look = f"{theme}-{size['width']}"
    page = inspected.page
    page.set_viewport_size(size)  # type: ignore[arg-type]
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    found: list[str] = []
    for name, path in PAGES.items():
        inspected.go(path)
        rules = RULES[look]
        found += [f"{name}: {each}" for each in serious(page, rules)] if rules else []
        found += [f"{name}: {each}" for each in too_wide(page)]
        if name in SHOWN:
            picture(page, f"console-{name}-{size['width']}-{theme}")
    assert found == []


def too_wide(page: Page) -> list[str]:
    """Return a fault if the page scrolls to the side."""
    root = "document.documentElement"
    over = page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")
    return [f"{over} px too wide"] if over > 0 else []


def serious(page: Page, rules: object = ALL_RULES) -> list[str]:
    """Return the serious violations that axe-core finds."""
    violations = page.evaluate("async rules => (await axe.run(document, rules)).violations", rules)
    return [
        f"{each['id']} ({each['impact']}) {each['nodes'][0]['target']}"
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]


DIALOGS = {
    "topics/orders": ["Delete topic"],
    "topics/orders/partitions": ["Add partitions", "Delete all messages"],
    "topics/orders/configuration": ["Change retention.ms"],
    "topics": ["Create topic"],
    "queues": ["Create queue"],
    "queues/jobs": ["Purge", "Delete queue"],
    "queues/jobs/dead-letters": ["Purge all"],
    "queues/jobs/policy": ["Change delivery_limit"],
    "queues/emails/webhooks": ["Add webhook", "hook"],
    "groups/billing": ["Reset", "Delete group"],
    "access": ["Add rule", "Remove rule 1"],
    "access/users": ["Create user"],
    "access/quotas": ["Set quota"],
    "settings": ["Keys"],
}
"""Buttons that open a dialog or drawer, by page."""


def test_no_dialog_or_drawer_has_a_serious_fault_or_is_too_wide(inspected: Tab) -> None:
    page = inspected.page
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.emulate_media(color_scheme="dark")
    found: list[str] = []
    dialog = page.get_by_role("dialog")
    for path, buttons in DIALOGS.items():
        inspected.go(path)
        for button in buttons:
            page.get_by_role("button", name=button, exact=True).click()
            expect(dialog.locator(".loading")).to_have_count(0)
            found += [f"{path} {button}: {each}" for each in (*serious(page), *too_wide(page))]
            page.keyboard.press("Escape")
            expect(dialog).to_be_hidden()
    page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    page.emulate_media(color_scheme="light")
    for path, table in (
        ("topics/orders", "Messages"),
        ("queues/jobs/records", "Records"),
        ("queues/jobs/dead-letters", "Dead letters"),
    ):
        inspected.go(path)
        row = page.get_by_role("table", name=table, exact=True).locator("tbody tr").nth(5)
        row.locator("button.row").click()
        expect(dialog).to_be_visible()
        found += [f"{path} row: {each}" for each in serious(page)]
        if table == "Messages":
            picture(page, "console-message-1280-light")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    assert found == []
