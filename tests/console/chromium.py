"""The browser of the tests: Debian's chromium, driven by Playwright from PyPI. Nothing is
downloaded.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is missing: make setup")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

__all__ = ["Axe", "Browser", "BrowserContext", "Page", "Route", "Tab", "expect", "launched"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY_NOT = "chromium is missing; on Debian: apt install chromium"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
TIMEOUT_MS = 60_000
"""Far more than any step takes: a loaded machine must not fail a test."""
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions"]
_PULSE = """async () => {
  const files = performance.getEntriesByType('resource').map(each => each.name);
  (await import(files.find(each => each.endsWith('/api.js')))).pulse.value += 1;
}"""
"""Does what an event `changed` of the broker does."""
expect.set_options(timeout=TIMEOUT_MS)


@contextmanager
def launched() -> Iterator[Browser]:
    """Run the browser."""
    assert CHROMIUM is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A tab of the console. Errors of scripts, refusals by the Content-Security-Policy and dialogs
    of scripts are noted; `check` finds them.
    """

    context: BrowserContext
    url: str
    page: Page = field(init=False)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("dialog", self._asked)

    def _said(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _asked(self, dialog: Any) -> None:
        self.faults.append(f"a script ran: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str, heading: str | None = None) -> Page:
        """Open a page by its address, and wait for its heading."""
        self.page.goto(f"{self.url}/ui/{path}")
        heading_of = self.page.get_by_role("heading", level=1)
        expect(heading_of).to_be_visible()
        if heading is not None:
            expect(heading_of).to_have_text(heading)
        return self.page

    def go(self, path: str) -> Page:
        """Show a page as a link does, without loading the console again, and wait for its data."""
        self.page.evaluate(
            """path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }""",
            f"/ui/{path}",
        )
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        expect(self.page.locator("main .loading, main [aria-busy=true]")).to_have_count(0)
        return self.page

    def check(self) -> None:
        """Fail if something went wrong."""
        assert self.faults == []

    def is_changed(self, name: str, *differences: str) -> None:
        """Expect that the dialog was refused, and says what is different."""
        alert = self.page.get_by_role("dialog").last.get_by_role("alert")
        expect(alert).to_contain_text(f"Nothing was done: {name} changed since this dialog was opened.")
        expect(alert.get_by_role("listitem")).to_have_text(list(differences))

    def poll(self, path: str) -> None:
        """Let the page load its data again, as after an event `changed`, and wait for an address of
        the API.
        """
        with self.page.expect_event("requestfinished", lambda request: request.url == self.url + path):
            self.page.evaluate(_PULSE)

    def confirm(self, name: str, verb: str) -> None:
        """Type the name in the dialog that asks, and press its button."""
        dialog = self.page.get_by_role("dialog").last
        expect(dialog.get_by_role("button", name=verb, exact=True)).to_be_disabled()
        dialog.get_by_role("textbox").fill(name)
        dialog.get_by_role("button", name=verb, exact=True).click()
