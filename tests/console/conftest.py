"""A browser for all tests of a run, and brokers with something of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from sparrow import testing
from sparrow.testing.running_broker import RunningBroker
from tests.console.site import Api, fill, report_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.console.chromium import Tab


@contextmanager
def filled_broker() -> Iterator[RunningBroker]:
    with testing.broker(process=True, webhooks_allow="private") as running:
        fill(running)
        report_pipeline(running)
        yield running


@pytest.fixture(scope="module")
def starting_broker() -> Iterator[Future[RunningBroker]]:
    """A broker that starts while the browser does."""
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        yield pool.submit(stack.enter_context, filled_broker())


@pytest.fixture(scope="module")
def broker(starting_broker: Future[RunningBroker]) -> RunningBroker:
    """A broker without logins; the tests of a module share it."""
    return starting_broker.result()


@pytest.fixture(scope="module")
def browser(starting_broker: Future[RunningBroker]) -> Iterator[Browser]:
    """A browser. It goes with the module: Playwright's loop keeps others from running."""
    from tests.console.chromium import CHROMIUM, WHY_NOT, launched

    if CHROMIUM is None:
        pytest.skip(WHY_NOT)
    with launched() as browser:
        yield browser


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


@pytest.fixture(scope="module")
def kept_tab(profile: BrowserContext, broker: RunningBroker) -> Tab:
    """The tab of a module: to open one takes as long as to load the console."""
    from tests.console.chromium import Tab

    return Tab(profile, broker.http.rstrip("/"))


@pytest.fixture
def tab(kept_tab: Tab) -> Iterator[Tab]:
    """A tab at the module's broker, for tests that change nothing of it but what it shows; at the
    end nothing may have gone wrong in it.
    """
    kept_tab.faults.clear()
    yield kept_tab
    for page in kept_tab.context.pages:
        if page != kept_tab.page:
            page.close()
    kept_tab.page.goto("about:blank")
    kept_tab.check()
