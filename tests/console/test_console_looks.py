"""Every page in both themes and two widths: accessible by axe-core, nothing too wide; and the
pictures of the documents.

The pictures are written to `docs/pictures/` when `SPARROW_PICTURES=1` is set, so that a test run
changes no file otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparrow import testing
from sparrow.testing.running_broker import RunningBroker
from tests.console.chromium import DESKTOP, PHONE, Axe, Page, Tab, expect
from tests.console.site import Api, fill, report_pipeline

pytestmark = pytest.mark.slow
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
    "settings": "settings",
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


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker whose data is fit for pictures."""
    with testing.broker(process=True, webhooks_allow="private") as running:
        fill(running, text="card declined")
        report_pipeline(running, text="warehouse.orders")
        yield running


@pytest.fixture(autouse=True)
def rules(api: Api) -> None:
    rule = {"resource_type": "Topic", "name": "unused", "principal": "User:ann", "operation": "Read"}
    api.post("/v1/acls", {"rules": [rule]})


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=IDS)
def test_axe_finds_nothing_serious_on_any_page(
    open_tab: Callable[..., Tab], broker: RunningBroker, theme: str, size: dict[str, int]
) -> None:
    """Colours are those of the theme and layout that of the width, so the fourth combination has
    only the pages of pictures.
    """
    tab = open_tab(broker, viewport=size, color_scheme=theme, reduced_motion="reduce")
    is_fourth = (theme, size) == LOOKS[-1]
    found: list[str] = []
    for name, path in PAGES.items():
        if is_fourth and name not in SHOWN:
            continue
        page = tab.open(path)
        expect(page.locator("main .loading")).to_have_count(0)
        found += [f"{name}: {each}" for each in serious(page)]
        root = "document.documentElement"
        too_wide = page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")
        found += [f"{name}: {too_wide} px too wide"] if too_wide > 0 else []
        if name in SHOWN:
            picture(page, f"console-{name}-{size['width']}-{theme}")
    assert found == []


def serious(page: Page) -> list[str]:
    """Return the serious violations that axe-core finds."""
    results = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    return [
        f"{each['id']} ({each['impact']}) {each['nodes'][0]['target']}"
        for each in results.response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_axe_finds_nothing_serious_in_dialogs_and_drawers(tab: Tab, broker: RunningBroker) -> None:
    found: list[str] = []
    for path, button in (
        ("topics/orders", "row"),
        ("topics/orders", "Delete topic"),
        ("queues/jobs", "Purge"),
        ("topics", "Create topic"),
        ("groups/billing", "Reset"),
        ("access", "Add rule"),
    ):
        page = tab.open(path)
        if button == "row":
            page.get_by_role("table", name="Messages").locator("tbody tr").nth(5).click()
        else:
            page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        found += [f"{path} {button}: {each}" for each in serious(page)]
        if button == "row":
            picture(page, "console-message-1280-light")
    assert found == []
