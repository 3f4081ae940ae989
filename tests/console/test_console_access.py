"""The console for users who may do much, little and nothing; login, logout, read-only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sparrow.sync
from sparrow import testing
from sparrow.client.results import AccessRule
from sparrow.testing.running_broker import RunningBroker
from tests.console.chromium import Page, Tab, expect
from tests.console.site import Api, fill
from tests.security.certificates import make_certificates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PASSWORD = "correct horse"
TOKENS = {"root": "r-token"}
USERS = {"root": PASSWORD, "reader": PASSWORD, "nobody": PASSWORD, "guest": PASSWORD}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    """A broker with logins: root may everything, reader reads orders and jobs, nobody nothing."""
    with testing.broker(
        process=True, tokens=TOKENS, users=USERS, super_users="root", webhooks_allow="private"
    ) as running:
        fill(running, TOKENS["root"])
        with sparrow.sync.connect(running.url, token=TOKENS["root"]) as root:
            root.admin.create_access_rules(
                [
                    AccessRule("Topic", "orders", "User:reader", "Read"),
                    AccessRule("Topic", "jobs", "User:reader", "Read"),
                    AccessRule("Group", "jobs", "User:reader", "Read"),
                ]
            )
        yield running


def log_in(tab: Tab, user: str, password: str = PASSWORD) -> Page:
    page = tab.open("", "Log in to Sparrow")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in", exact=True).click()
    return page


def test_login_wrong_right_and_out(open_tab: Callable[..., Tab], guarded: RunningBroker) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "root", "wrong password")
    expect(page.get_by_role("alert")).to_be_visible()
    assert tab.context.cookies() == []
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.get_by_text("Ready")).to_be_visible()
    (cookie,) = tab.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in to Sparrow")
    assert tab.context.cookies() == []


def test_login_by_token_which_is_in_no_address(open_tab: Callable[..., Tab], guarded: RunningBroker) -> None:
    tab = open_tab(guarded)
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    page = tab.open("topics", "Log in to Sparrow")
    page.get_by_role("button", name="By token").click()
    page.get_by_label("Token").fill(TOKENS["root"])
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")  # the deep link that was asked for
    page.get_by_role("link", name="orders").click()
    page.goto(f"{tab.url}/ui/topics/orders?live=1")
    expect(page.get_by_text("Waiting for new messages")).to_be_visible()
    assert not any("token" in each for each in asked)


def test_many_wrong_logins_are_slowed_down(guarded: RunningBroker) -> None:
    import time

    api = Api(guarded)
    began = time.monotonic()
    for _ in range(6):
        status, problem, _ = api.call("POST", "/v1/session", {"user": "guest", "password": "guess"})
        assert (status, problem["code"]) == (401, "NOT_AUTHENTICATED")
    assert time.monotonic() - began > 1.0  # fewer than five a second, whatever the machine


def test_a_user_with_every_right_sees_every_page(
    open_tab: Callable[..., Tab], guarded: RunningBroker
) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "root")
    nav = page.get_by_role("navigation", name="Pages")
    expect(nav.get_by_role("link")).to_have_text(
        [
            *("Overview", "Topics", "Queues", "Groups", "Schedules", "Pipelines"),
            *("Access", "Connections", "Settings"),
        ]
    )
    for name in ("Access", "Connections", "Settings"):
        nav.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)


def test_a_user_with_few_rights_sees_those_things_and_no_button_for_the_others(
    open_tab: Callable[..., Tab], guarded: RunningBroker
) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "reader")
    expect(page.get_by_text("The state of the broker takes the right Describe")).to_be_visible()
    nav = page.get_by_role("navigation", name="Pages")
    expect(nav.get_by_role("link")).to_have_text(
        ["Overview", "Topics", "Queues", "Groups", "Schedules", "Pipelines"]
    )
    tab.go("topics")
    expect(page.get_by_role("table", name="Topics").locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name="Create topic")).to_be_hidden()
    tab.go("topics/orders")
    expect(page.get_by_role("table", name="Messages").locator("tbody tr").first).to_be_visible()
    for button in ("Delete topic", "Publish", "Configuration"):
        expect(page.get_by_text(button, exact=True)).to_be_hidden()
    page.get_by_role("table", name="Messages").locator("tbody tr").first.click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Copy value")).to_be_visible()
    expect(page.get_by_role("button", name="Publish again")).to_be_hidden()
    page.keyboard.press("Escape")
    tab.go("queues/jobs")
    expect(page.get_by_role("link", name="Records", exact=True)).to_be_visible()
    for button in ("Pause", "Purge", "Delete queue"):
        expect(page.get_by_role("button", name=button)).to_be_hidden()
    tab.go("access")
    expect(page.get_by_text("You are not allowed to see this.")).to_be_visible()


def test_a_refusal_by_the_broker_is_said_in_words(
    open_tab: Callable[..., Tab], guarded: RunningBroker
) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "reader")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.goto(f"{tab.url}/ui/topics/events")
    expect(page.get_by_role("alert").first).to_contain_text("You are not allowed to do this.")


def test_a_user_without_rights_sees_nothing(open_tab: Callable[..., Tab], guarded: RunningBroker) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "nobody")
    expect(page.get_by_text("You are logged in as nobody.")).to_be_visible()
    for path, words in (
        ("topics", "There is no topic that you may see."),
        ("queues", "There is no queue that you may see."),
        ("groups", "There is no group that you may see."),
    ):
        tab.go(path)
        expect(page.get_by_text(words)).to_be_visible()
    tab.go("schedules")
    expect(page.get_by_text("No schedule: nothing publishes")).to_be_visible()
    expect(page.get_by_role("button", name="Add schedule")).to_be_hidden()


def test_a_session_ends_with_its_user_and_the_page_says_so(
    open_tab: Callable[..., Tab], guarded: RunningBroker
) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "guest")
    expect(page.get_by_text("You are logged in as guest.")).to_be_visible()
    assert Api(guarded, TOKENS["root"]).call("DELETE", "/v1/users/guest")[0] == 204
    tab.open("topics", "Log in to Sparrow")
    expect(page.get_by_label("User")).to_be_visible()


def test_a_session_that_ends_under_an_open_page_asks_for_a_login_and_goes_on_there(
    open_tab: Callable[..., Tab], guarded: RunningBroker
) -> None:
    tab = open_tab(guarded)
    page = log_in(tab, "root")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    tab.open("topics", "Topics")
    tab.context.clear_cookies()
    expect(page.get_by_text("Your session is over: log in again.")).to_be_visible()
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")


def test_a_read_only_console_is_refused_every_change_by_the_broker(open_tab: Callable[..., Tab]) -> None:
    with testing.broker(process=True, http_console="read-only") as running:
        api = Api(running)
        api.post("/v1/topics", {"name": "kept", "partitions": 1})
        tab = open_tab(running)
        page = tab.open("topics/kept", "kept")
        page.get_by_role("button", name="Delete topic").click()
        tab.confirm("kept", "Delete topic")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("read-only (http.console)")
        page.keyboard.press("Escape")
        tab.go("topics/kept/publish")
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("read-only (http.console)")
        assert api.get("/v1/topics/kept/search")["messages"] == []


def test_a_login_over_tls_gets_a_cookie_that_is_never_sent_in_clear(
    open_tab: Callable[..., Tab], tmp_path: Path
) -> None:
    files = make_certificates(tmp_path).server
    with testing.broker(
        process=True,
        tokens=TOKENS,
        users={"root": PASSWORD},
        super_users="root",
        tls_certificate=files.certificate,
        tls_key=files.key,
    ) as running:
        assert running.http.startswith("https://")
        tab = open_tab(running, ignore_https_errors=True)
        page = log_in(tab, "root")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        expect(page.get_by_text("Ready")).to_be_visible()
        (cookie,) = tab.context.cookies()
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in to Sparrow")
        assert tab.context.cookies() == []


def test_users_get_passwords_and_are_deleted_unless_they_are_others_meanwhile(
    open_tab: Callable[..., Tab], guarded: RunningBroker
) -> None:
    tab = open_tab(guarded)
    api = Api(guarded, TOKENS["root"])
    page = log_in(tab, "root")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    tab.go("access/users")
    users = page.get_by_role("table", name="Users", exact=True)
    expect(users.get_by_role("row", name="reader")).to_contain_text("SCRAM-SHA-256, SCRAM-SHA-512")
    tokens = page.get_by_role("table", name="Tokens")
    expect(tokens.locator("tbody tr")).to_have_text(["User:root"])
    assert TOKENS["root"] not in page.content()

    page.get_by_role("button", name="Create user").click()
    dialog = page.get_by_role("dialog", name="Create user")
    dialog.get_by_label("Name").fill("temp")
    dialog.get_by_label("Password").fill("short")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("at least 8")
    dialog.get_by_label("Password").fill("long enough")
    dialog.get_by_role("button", name="Save").click()
    expect(users.get_by_role("row", name="temp")).to_be_visible()
    assert api.call("POST", "/v1/session", {"user": "temp", "password": "long enough"})[0] == 200

    page.get_by_role("button", name="Set the password of temp").click()
    page.get_by_role("dialog").get_by_label("Password").fill("another one")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert api.call("POST", "/v1/session", {"user": "temp", "password": "another one"})[0] == 200

    page.get_by_role("button", name="Delete temp").click()
    expect(page.get_by_role("dialog").get_by_text("0 rules about it stay.")).to_be_visible()
    api.call("DELETE", "/v1/users/temp")
    api.post("/v1/users", {"name": "temp", "password": "of somebody else"})
    tab.confirm("temp", "Delete user")
    tab.is_changed("temp", "it was deleted, and another one of this name was made")
    assert api.get("/v1/users/temp")["name"] == "temp"
    tab.confirm("temp", "Delete user")
    expect(users.get_by_role("row", name="temp")).to_have_count(0)
    assert api.call("GET", "/v1/users/temp")[0] == 404


def test_without_a_login_nobody_is_asked_for_one(tab: Tab) -> None:
    page = tab.open("", "Overview")
    expect(page.get_by_role("button", name="Log out")).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile("Log in"))).to_be_hidden()
