"""The console when the broker goes and comes back, is hidden, and by the keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sparrow import testing
from sparrow.testing.running_broker import RunningBroker
from tests.console.chromium import Page, Tab, expect
from tests.console.site import Api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MAX_FIRST_VIEW_BYTES = 60_000
WHEN_SHOWN = """(selector, text, act) => new Promise(resolve => {
  new MutationObserver((_, observer) => {
    const found = document.querySelector(selector);
    if (found?.innerText !== text) return;
    observer.disconnect();
    resolve(found.closest('dialog:not([open])') ? 'closed' : document.activeElement.tagName);
  }).observe(document.body, {childList: true, subtree: true, characterData: true});
  act();
})"""
"""Acts, and returns the tag that has the focus at the moment when an element has a text."""


def test_a_lost_broker_shows_a_banner_and_the_page_goes_on_by_itself(open_tab: Callable[..., Tab]) -> None:
    with testing.broker(process=True) as running:
        Api(running).post("/v1/topics", {"name": "before", "partitions": 1})
        tab = open_tab(running)
        page = tab.open("topics", "Topics")
        expect(page.get_by_role("link", name="before")).to_be_visible()
        running.stop()
        expect(page.get_by_text("The broker does not answer since")).to_be_visible()
        expect(page.get_by_text(re.compile(r"as of \d+ .+ ago"))).to_be_visible()
        expect(page.get_by_role("link", name="before")).to_be_visible()
        running.restart()
        expect(page.get_by_text("The broker does not answer since")).to_be_hidden()
        expect(page.get_by_text(re.compile(r"as of \d+ .+ ago"))).to_be_hidden()
        Api(running).post("/v1/topics", {"name": "after", "partitions": 1})
        expect(page.get_by_role("link", name="after")).to_be_visible()


def test_changes_by_others_appear_by_themselves(tab: Tab, api: Api) -> None:
    page = tab.open("queues/family/policy", "family")
    expect(page.get_by_role("row", name="max_leased")).to_be_visible()
    api.call("PATCH", "/v1/queues/family", {"set": {"max_leased": 77}})
    expect(page.get_by_role("row", name="max_leased")).to_contain_text("77")


def test_a_hidden_page_listens_and_asks_no_more(open_tab: Callable[..., Tab], broker: RunningBroker) -> None:
    """The page's clock is turned on by hand, so that nobody waits for its timers."""
    tab = open_tab(broker)
    page = tab.page
    page.clock.install()
    tab.open("topics", "Topics")
    expect(page.get_by_role("table", name="Topics")).to_be_visible()
    with page.expect_request(lambda request: "/v1/overview/topics" in request.url):
        page.clock.run_for(10_000)
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/events")):
        page.evaluate(
            """Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'))"""
        )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(600_000)
    page.evaluate("fetch('/healthz').then(() => null)")
    assert asked == [f"{tab.url}/healthz"]


def focused(page: Page) -> str:
    """Return what has the focus: its role or tag, and its name or text."""
    return str(
        page.evaluate(
            """() => { const e = document.activeElement;
            return `${e.tagName} ${e.getAttribute('aria-label') || e.innerText || e.value || ''}`.trim() }"""
        )
    )


def test_everything_is_reached_by_the_keyboard_alone(tab: Tab, api: Api) -> None:
    api.post("/v1/topics", {"name": "by-keys", "partitions": 1})
    page = tab.open("", "Overview")
    assert focused(page) == "H1 Overview"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.type("gt")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    page.keyboard.press("/")
    page.keyboard.type("by-keys")
    expect(page.get_by_text("1 topic", exact=True)).to_be_visible()
    for _ in range(5):
        page.keyboard.press("Tab")
        if focused(page) == "A by-keys":
            break
    assert focused(page) == "A by-keys"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("by-keys")
    expect(page.get_by_role("link", name="Publish")).to_be_visible()
    for _ in range(10):
        page.keyboard.press("Tab")
        if focused(page) == "A Publish":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_label("Value", exact=True)).to_be_visible()
    for _ in range(10):
        page.keyboard.press("Tab")
        if focused(page).startswith("TEXTAREA"):
            break
    page.keyboard.type("typed")
    for _ in range(12):
        page.keyboard.press("Tab")
        if focused(page) == "BUTTON Publish":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_text("Published to partition 0 at offset 0.")).to_be_visible()
    page.keyboard.press("Shift+Tab")
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if focused(page) == "BUTTON Delete topic":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_text("1 message")).to_be_visible()
    for _ in range(4):
        if focused(page).startswith("INPUT"):
            break
        page.keyboard.press("Tab")
    page.keyboard.type("by-keys")
    expect(page.get_by_role("button", name="Delete topic").last).to_be_enabled()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert api.call("GET", "/v1/topics/by-keys")[0] == 404


def test_the_skip_link_leads_behind_the_navigation(tab: Tab) -> None:
    page = tab.open("topics", "Topics")
    page.evaluate("document.activeElement.blur()")
    page.evaluate("document.querySelector('.skip').focus()")
    assert focused(page) == "A Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_dialog_gives_the_focus_back(tab: Tab) -> None:
    page = tab.open("topics", "Topics")
    page.get_by_role("button", name="Create topic").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert focused(page) == "BUTTON Create topic"


def test_a_heading_and_a_dialog_take_the_focus_before_anything_else_can_happen(tab: Tab) -> None:
    """An observer sees the page between its change and the next task, be that a key or a frame."""
    page = tab.open("", "Overview")
    click = "() => document.querySelector('[href$=topics]').click()"
    assert page.evaluate(f"({WHEN_SHOWN})('h1', 'Topics', {click})") == "H1"
    expect(page.get_by_role("button", name="Create topic")).to_be_visible()
    click = "() => document.querySelector('main button.main').click()"
    first = "BUTTON"  # the one that closes the dialog
    assert page.evaluate(f"({WHEN_SHOWN})('dialog h2', 'Create topic', {click})") == first


def test_the_first_view_is_small(open_tab: Callable[..., Tab], broker: RunningBroker) -> None:
    sizes: dict[str, int] = {}
    tab = open_tab(broker)
    tab.page.on(
        "requestfinished",
        lambda request: sizes.__setitem__(request.url, request.sizes()["responseBodySize"]),
    )
    page = tab.open("", "Overview")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    files = {url: size for url, size in sizes.items() if "/ui" in url or "favicon" in url}
    assert len(files) > 10
    assert sum(files.values()) <= MAX_FIRST_VIEW_BYTES
