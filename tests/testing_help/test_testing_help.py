"""`sparrow.testing`: a real broker in a test."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import sparrow
import sparrow.testing
from sparrow.base.errors import DirectoryInUse, InvalidArgument, InvalidConfig

pytest_plugins = ["pytester"]


def roundtrip(url, topic="topic"):
    with sparrow.sync.connect(url) as client:
        return client.publish(topic, b"value").offset


def test_broker_is_real_and_leaves_nothing_behind():
    with sparrow.testing.broker() as broker:
        assert roundtrip(broker.url) == 0
        assert os.path.isdir(broker.data_dir)
        assert broker.url == f"sparrow://{broker.host}:{broker.port}"
    assert not os.path.exists(broker.data_dir)


def test_restart_keeps_port_and_data():
    with sparrow.testing.broker(default_partitions=1) as broker:
        port = broker.port
        assert roundtrip(broker.url) == 0
        broker.restart()
        assert broker.port == port
        assert roundtrip(broker.url) == 1


def test_given_data_directory_stays(tmp_path):
    with sparrow.testing.broker(data_dir=str(tmp_path / "data")) as broker:
        roundtrip(broker.url)
    assert (tmp_path / "data" / ".clean").exists()


def test_brokers_do_not_share_anything():
    with sparrow.testing.broker() as one, sparrow.testing.broker() as two:
        roundtrip(one.url)
        assert one.port != two.port
        with sparrow.sync.connect(two.url) as client:
            assert client.admin.list_topics() == []


def test_options_may_be_written_as_in_the_file():
    with (
        sparrow.testing.broker(idle_timeout_ms="5s", max_frame_bytes="1 MiB", default_partitions=7) as broker,
        sparrow.sync.connect(broker.url) as client,
    ):
        assert client.admin.create_topic("t").partition_count == 7


def test_environment_and_file_of_the_caller_play_no_part(tmp_path, monkeypatch):
    (tmp_path / "sparrow.yml").write_text("default_partitions: nonsense")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARROW_NATIVE_PORT", "nonsense")
    with sparrow.testing.broker() as broker:
        roundtrip(broker.url)


def test_wrong_option_is_refused():
    with pytest.raises(InvalidConfig, match="there is no option 'prot'"), sparrow.testing.broker(prot=1):
        pass
    with (
        pytest.raises(InvalidConfig, match=r"native\.port cannot be"),
        sparrow.testing.broker(native_port="x"),
    ):
        pass


@pytest.mark.parametrize("process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_error_of_the_start_reaches_the_test(process):
    expected = DirectoryInUse if not process else sparrow.base.errors.DataDirectoryError
    with (
        sparrow.testing.broker() as broker,
        pytest.raises(expected, match="in use"),
        sparrow.testing.broker(process=process, data_dir=broker.data_dir),
    ):
        pass


def test_broker_in_a_thread_cannot_be_killed():
    with sparrow.testing.broker() as broker, pytest.raises(InvalidArgument, match="process=True"):
        broker.kill()


@pytest.mark.slow
def test_broker_in_a_process_survives_kill_9():
    with sparrow.testing.broker(
        process=True, default_partitions=1, tokens={"a": "t"}, acl_default="allow"
    ) as broker:
        assert broker.pid != os.getpid()
        url = f"sparrow://:t@{broker.host}:{broker.port}"
        assert roundtrip(url) == 0
        broker.kill()
        broker.restart()
        assert roundtrip(url) == 1


@pytest.mark.slow
def test_fixtures_of_the_plugin_work_in_a_strangers_test(pytester):
    pytester.makepyfile(
        """
        import sparrow

        def test_one(sparrow_broker, sparrow_topic):
            with sparrow.sync.connect(sparrow_broker.url) as client:
                assert client.publish(sparrow_topic, b"x").offset == 0

        def test_two(sparrow_broker, sparrow_topic):
            with sparrow.sync.connect(sparrow_broker.url) as client:
                assert client.publish(sparrow_topic, b"x").offset == 0
        """
    )
    pytester.runpytest_subprocess(
        "-q", "-W", "error", "-p", "no:randomly", "-p", "no:asyncio"
    ).assert_outcomes(passed=2)


@pytest.mark.slow
def test_plugin_costs_other_test_runs_next_to_nothing():
    code = (
        "import sys, pytest; before = set(sys.modules); import sparrow.testing.plugin;"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('sparrow') or m in "
        "('asyncio', 'msgspec')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert found.stdout.split() == ["sparrow", "sparrow.testing", "sparrow.testing.plugin"]


def test_topic_name_is_the_tests_own(sparrow_topic):
    assert sparrow_topic.startswith("test-topic-name-is-the-tests-own-")
