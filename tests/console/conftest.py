"""A browser for all tests of a run, and brokers with something of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from sparrow import testing
from sparrow.testing.running_broker import RunningBroker
from tests.console.site import Api, fill, report_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.console.chromium import Tab


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser. It goes with the module: Playwright's loop keeps others from running."""
    from tests.console.chromium import CHROMIUM, WHY_NOT, launched

    if CHROMIUM is None:
        pytest.skip(WHY_NOT)
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker without logins; the tests of a module share it."""
    with testing.broker(process=True, webhooks_allow="private") as running:
        fill(running)
        report_pipeline(running)
        yield running


@pytest.fixture
def api(broker: RunningBroker) -> Api:
    return Api(broker)


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Open tabs, each in a profile of its own; at the end nothing may have gone wrong in them."""
    from tests.console.chromium import DESKTOP, Tab

    tabs: list[Tab] = []

    def open_one(broker: RunningBroker, **options: object) -> Tab:
        context = browser.new_context(**{"viewport": DESKTOP, **options})  # type: ignore[arg-type]
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        tabs.append(Tab(context, broker.http.rstrip("/")))
        return tabs[-1]

    yield open_one
    for each in tabs:
        each.context.close()
    for each in tabs:
        each.check()


@pytest.fixture(scope="module")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """A profile for the tabs of a module at a broker without logins: it keeps the console's files,
    and nothing else.
    """
    from tests.console.chromium import DESKTOP

    context = browser.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def tab(profile: BrowserContext, broker: RunningBroker) -> Iterator[Tab]:
    """A tab at the module's broker; at the end nothing may have gone wrong in it."""
    from tests.console.chromium import Tab

    opened = Tab(profile, broker.http.rstrip("/"))
    yield opened
    for page in profile.pages:
        page.close()
    opened.check()
