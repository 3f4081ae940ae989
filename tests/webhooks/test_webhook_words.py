"""Each setting of a webhook has one name, as for queues; names with units are accepted as well."""

from __future__ import annotations

import json
import urllib.request

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import InvalidConfig
from sparrow.broker.webhooks.endpoint import WORDS, new_settings
from sparrow.server.bootstrap.endpoints import WEBHOOKS

URL = "https://example.org/hook"
IN_WORDS = {"timeout": "20s", "backoff_delay": "1m", "backoff_max": 90_000, "jitter": 0.5}
BY_NAME = {"timeout_ms": 20_000, "backoff_ms": 60_000, "backoff_max_ms": 90_000, "backoff_jitter": 0.5}


def test_words_and_names_mean_the_same():
    assert set(WORDS) == set(IN_WORDS)
    assert new_settings({"url": URL, **IN_WORDS}) == new_settings({"url": URL, **BY_NAME})


def test_the_file_python_and_http_take_the_same_words():
    (declared,) = WEBHOOKS.read({"mailer": {"url": URL, **IN_WORDS}})
    with sparrow.testing.broker() as broker, sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue("emails")
        made = client.admin.put_webhook("emails", "mailer", URL, **IN_WORDS)
        client.admin.create_queue("letters")
        request = urllib.request.Request(
            f"{broker.http}/v1/queues/letters/subscribers/mailer",
            data=json.dumps({"url": URL, **IN_WORDS}).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        shown = json.loads(urllib.request.urlopen(request).read())
    for settings in (declared.settings, made.settings, (shown.get("webhook") or shown)["settings"]):
        assert {name: settings[name] for name in BY_NAME} == BY_NAME


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"timout": "1s"}, "no setting 'timout'; did you mean 'timeout'?"),
        ({"timeout": "soon"}, "timeout is 'soon'; it is a duration such as"),
        ({"timeout": "1d"}, "timeout is 86400000; it is a whole number from 100 to 600000"),
        ({"timeout": "1s", "timeout_ms": 1000}, "'timeout' and 'timeout_ms' are one setting; give it once"),
    ],
)
def test_wrong_words_are_refused(settings, text):
    with pytest.raises(InvalidConfig) as caught:
        new_settings({"url": URL, **settings})
    assert text in caught.value.text
