"""Loading certificates, authorities, revocation lists, tokens and log level again, while clients
are connected.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException

import sparrow.sync
import sparrow.testing
from sparrow.base.der import certificate_named, revoked_in
from sparrow.base.errors import InvalidArgument, InvalidConfig, NotAuthorized
from sparrow.base.settings import build
from sparrow.broker.access.authz import Principal
from sparrow.broker.broker import Broker
from sparrow.server.config import ServerConfig
from sparrow.server.server import Server
from tests.sessions.served import KINDS, Authority, config_of

TLS_KINDS = ("native", "kafka", "stream")
TOKENS = {"robot": "token-one-1", "other": "token-two-2"}


@pytest.fixture
def authority(tmp_path):
    made = Authority(tmp_path)
    made.issue("server")
    return made


@pytest.fixture(autouse=True)
def root_level():
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


def tls_options(path, **others):
    return {"tls_certificate": f"{path}/server.pem", "tls_key": f"{path}/server.key", **others}


def client_of(authority, path=None, name=""):
    context = ssl.create_default_context(cafile=authority.file)
    if name:
        context.load_cert_chain(f"{path}/{name}.pem", f"{path}/{name}.key")
    return context


@pytest.mark.parametrize("kind", TLS_KINDS)
async def test_new_connections_get_the_new_certificate_and_established_ones_go_on(
    start, authority, tmp_path, kind
):
    served = await start(**tls_options(tmp_path))
    tls = client_of(authority)
    connected = await served.open(kind, None, tls)
    before = await served.certificate(kind, tls)
    renewed = authority.issue("server")
    await served.server.reload()
    after = await served.certificate(kind, tls)
    assert after != before
    assert certificate_named(after).serial.lstrip(b"\0") == renewed.serial_number.to_bytes(20).lstrip(b"\0")
    assert not await connected.is_over(0.1)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("server.pem", "tls.certificate"),
        ("server.key", "tls.key"),
        ("ca.pem", "tls.client_ca"),
        ("crl.pem", "tls.client_crl"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"garbage", None])
async def test_a_broken_file_leaves_the_old_ones_and_says_why(
    start, authority, tmp_path, file, words, content
):
    authority.issue("client")
    (tmp_path / "crl.pem").write_bytes(authority.revoke())
    served = await start(
        tokens=TOKENS,
        **tls_options(tmp_path, tls_client_ca=authority.file, tls_client_crl=f"{tmp_path}/crl.pem"),
    )
    tls = client_of(authority, tmp_path, "client")
    before = await served.certificate("stream", tls)
    authority.issue("server")
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(InvalidConfig, match=words):
        await served.server.reload()
    assert await served.certificate("stream", tls) == before


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_of_revoked_certificates_end_and_others_go_on(start, authority, tmp_path, kind):
    revoked = authority.issue("revoked")
    authority.issue("good")
    crl = tmp_path / "crl.pem"
    crl.write_bytes(authority.revoke())
    served = await start(**tls_options(tmp_path, tls_client_ca=authority.file, tls_client_crl=str(crl)))
    ended = await served.open(kind, None, client_of(authority, tmp_path, "revoked"))
    good = await served.open(kind, None, client_of(authority, tmp_path, "good"))
    crl.write_bytes(authority.revoke(revoked))
    await served.server.reload()
    assert await ended.is_over()
    assert not await good.is_over(0.1)
    assert await _is_refused(served, kind, client_of(authority, tmp_path, "revoked"))


def _content(authority):
    return Path(authority.file).read_bytes()


async def _is_refused(served, kind, tls):
    """Return True if a new connection gets no response."""
    try:
        return await (await served.open(kind, None, tls)).is_over()
    except (OSError, EOFError, WebSocketException):
        return True


async def test_an_idle_connection_between_requests_ends_with_its_certificate(start, authority, tmp_path):
    revoked = authority.issue("revoked")
    crl = tmp_path / "crl.pem"
    crl.write_bytes(authority.revoke())
    served = await start(**tls_options(tmp_path, tls_client_ca=authority.file, tls_client_crl=str(crl)))
    connection = await served._http("/healthz", {}, client_of(authority, tmp_path, "revoked"))
    crl.write_bytes(authority.revoke(revoked))
    await served.server.reload()
    assert await connection.is_over()


async def test_sessions_of_an_authority_that_is_not_trusted_any_more_end(start, authority, tmp_path):
    other = Authority(tmp_path, "other")
    other.issue("stranger")
    authority.issue("friend")
    both = tmp_path / "both.pem"
    both.write_bytes(_content(authority) + _content(other))
    served = await start(**tls_options(tmp_path, tls_client_ca=str(both)))
    stranger_context = client_of(authority, tmp_path, "stranger")
    stranger = await served.open("native", None, stranger_context)
    friend = await served.open("native", None, client_of(authority, tmp_path, "friend"))
    shutil.copy(authority.file, both)
    await served.server.reload()
    assert await stranger.is_over()
    assert not await friend.is_over(0.1)
    assert await _is_refused(served, "native", stranger_context)


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_of_removed_tokens_end_and_new_tokens_hold(start, tmp_path, kind):
    file = tmp_path / "tokens"
    file.write_text("robot token-one-1\nother token-two-2\n")
    served = await start(tokens_file=str(file))
    robot = await served.open(
        kind, {"token": "token-one-1", "user": "robot"} if kind == "kafka" else {"token": "token-one-1"}
    )
    other = await served.open(
        kind, {"token": "token-two-2", "user": "other"} if kind == "kafka" else {"token": "token-two-2"}
    )
    file.write_text("robot token-new-3\nother token-two-2\n")
    done = await served.server.reload()
    assert "tokens_file" in done.loaded
    assert await robot.is_over()
    assert not await other.is_over(0.1)
    again = await served.open(
        kind, {"token": "token-new-3", "user": "robot"} if kind == "kafka" else {"token": "token-new-3"}
    )
    assert not await again.is_over(0.1)


async def test_options_that_need_a_restart_are_named_and_the_log_level_applies(start, tmp_path):
    changed = build(ServerConfig, config_of(tmp_path, default_partitions=9, log_level="debug"))
    served = await start(read_again=lambda: changed)
    done = await served.server.reload()
    assert done.needs_restart == ["default_partitions"]
    assert logging.getLogger().level == logging.DEBUG


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"tokens": TOKENS}, "nobody has to log in"),
        ({}, {"tls": True}, "TLS is switched on or off by a restart"),
        ({"tls": True}, {}, "TLS is switched on or off by a restart"),
        ({"tls": True}, {"tls": True, "ca": True}, "whether clients show certificates"),
    ],
)
async def test_reload_that_would_change_authentication_is_refused(
    start, authority, tmp_path, before, after, words
):
    def options(given):
        made = dict(tls_options(tmp_path)) if given.get("tls") else {}
        if given.get("ca"):
            made["tls_client_ca"] = authority.file
        return {**made, **({"tokens": given["tokens"]} if "tokens" in given else {})}

    changed = build(ServerConfig, config_of(tmp_path, **options(after)))
    served = await start(read_again=lambda: changed, **options(before))
    with pytest.raises(InvalidConfig, match=words):
        await served.server.reload()


async def test_a_reload_takes_a_right_on_the_cluster(start):
    served = await start(tokens=TOKENS)
    with pytest.raises(NotAuthorized, match="AlterConfigs"):
        await served.broker.reload(principal=Principal("robot"))
    assert (await served.broker.reload(principal=Principal("root"))).loaded


async def test_a_broker_without_a_configuration_has_nothing_to_load(tmp_path):
    async with Broker(tmp_path / "data") as broker:
        with pytest.raises(InvalidArgument, match="sparrow serve"):
            await broker.reload()


def test_a_revocation_list_is_read_as_another_library_wrote_it(tmp_path):
    authority = Authority(tmp_path)
    issued = [authority.issue(f"c{number}") for number in range(50)]
    from cryptography.hazmat.primitives.serialization import Encoding

    named = [certificate_named(each.public_bytes(Encoding.DER)) for each in issued]
    assert revoked_in(authority.revoke(*issued[:20])) == frozenset(named[:20])
    assert revoked_in(authority.revoke()) == frozenset()


def test_a_damaged_list_is_an_error_and_never_a_crash(tmp_path):
    authority = Authority(tmp_path)
    text = authority.revoke(authority.issue("client"))
    lines = text.splitlines()
    for end in range(2, len(lines)):
        with contextlib.suppress(ValueError):
            revoked_in(b"\n".join([*lines[1:end], lines[-1]]))
            revoked_in(b"\n".join([lines[0], *lines[2:end], lines[-1]]))
    with pytest.raises(ValueError, match="cut off"):
        revoked_in(b"-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n")


# ── the process ───────────────────────────────────────────────────────────────────────────────────


def test_the_command_loads_again_and_a_broken_file_is_exit_code_78(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("root token-one-1\n")
    with sparrow.testing.broker(
        process=True, tokens_file=str(tokens), super_users=["root"], http_port="off", kafka_port="off"
    ) as broker:
        tokens.write_text("root token-one-1\nann token-two-2\n")
        assert _reload(broker.url, "token-one-1").stdout.startswith("loaded again: tokens_file")
        with sparrow.sync.connect(broker.url, token="token-two-2") as client:
            client.admin.list_topics()
        tokens.write_text("root\n")
        refused = _reload(broker.url, "token-one-1")
        assert (refused.returncode, refused.stdout) == (78, "")
        assert f"{tokens}:1: a principal and a token are expected" in refused.stderr
        assert _reload(broker.url, "token-two-2").returncode == 77


def _reload(url, token):
    return subprocess.run(
        [sys.executable, "-m", "sparrow", "config", "reload", "--url", url, "--token", token],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("disposition", [signal.SIG_DFL, signal.SIG_IGN])
def test_sighup_loads_again_also_where_it_was_ignored_at_the_start(tmp_path, disposition):
    """As under nohup, which ignores the signal for what it starts."""
    tokens, config, ready = tmp_path / "tokens", tmp_path / "sparrow.yml", tmp_path / "ready"
    tokens.write_text("root token-one-1\n")
    config.write_text(
        f"data_dir: {tmp_path}/data\ntokens_file: {tokens}\nready_file: {ready}\n"
        "native: {port: 0}\nkafka: {port: off}\nhttp: {port: off}\nlog: {format: json}\n"
    )
    before = signal.signal(signal.SIGHUP, disposition)  # what a process inherits
    process = subprocess.Popen(
        [sys.executable, "-m", "sparrow", "serve", "--config", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGHUP, before)
    lines: list[str] = []
    reading = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
    reading.start()
    try:
        _until(ready.exists)
        tokens.write_text("broken\n")
        os.kill(process.pid, signal.SIGHUP)
        _until(lambda: any("all stays as it was" in line and f"{tokens}:1" in line for line in lines))
        tokens.write_text("root token-two-2\n")
        os.kill(process.pid, signal.SIGHUP)
        _until(lambda: any("configuration loaded again" in line for line in lines))
        assert process.poll() is None
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        reading.join(10)
        process.stderr.close()


def _until(is_so, seconds=30):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_server_is_made_without_a_way_to_read_again(tmp_path):
    assert Server(build(ServerConfig, config_of(tmp_path)))._read_again() == build(
        ServerConfig, config_of(tmp_path)
    )
