"""Options of source and sink for the connection to the broker, and the translation of Kafka's
options for the same.

A job that moves from Spark's Kafka connector has `kafka.bootstrap.servers`, perhaps with SASL and
TLS. Options with a counterpart are translated: the host (9092, the port of the Kafka listener,
becomes 9094, that of the native one), user and password, PEM files. An option without one is
refused with what to do instead, where leaving it out would be less safe or would not work; tuning
is left out with a warning.

The environment of the driver has the defaults (SPARROW_URL, SPARROW_TOKEN, SPARROW_USER,
SPARROW_PASSWORD, SPARROW_CA_FILE, …), as for the commands. Tasks get the finished `Target`; nothing
is read on executors but the TLS files, which must be there under the same paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import misfit
from sparrow.base.settings import TEXT, choice, duration, integer
from sparrow.client.url import SCHEME, TLS_SCHEME, parse_url
from sparrow.spark.options.declare import DataSourceOption, Options, Rule, Values
from sparrow.spark.options.kafka import IGNORED, REFUSED
from sparrow.spark.wire.target import Target

DEFAULT_URL = "sparrow://127.0.0.1:9094"
_KAFKA_PORT = 9092
_NATIVE_PORT = 9094
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
_TIMEOUT = duration(1, 3_600_000)
_SHORT_S, _LONG_S = 10.0, 60.0


def _url(text: str) -> None:
    try:
        parse_url(text)
    except InvalidArgument as error:
        raise misfit(error.text) from None


def _servers(text: str) -> None:
    try:
        _hosts(text)
    except InvalidArgument as error:
        raise misfit(error.text) from None


def _jaas(text: str) -> None:
    if {name for name, *_ in _LOGIN.findall(text)} != {"username", "password"}:
        raise ValueError(
            'a login such as … required username="ann" password="…"; (or give user and password)'
        )


def _pem(text: str) -> None:
    if text.lower().endswith((".jks", ".p12", ".pfx", ".keystore", ".truststore")):
        raise ValueError(
            "a PEM file; convert the store, for instance by keytool -exportcert -rfc, and name it by caFile"
        )


CONNECTION = (
    DataSourceOption(
        "url",
        TEXT,
        None,
        "Where the broker is: `sparrow[s]://[user:password@]host[:port]`; `SPARROW_URL`.",
        check=_url,
        is_secret=True,
        show=DEFAULT_URL,
    ),
    DataSourceOption(
        "kafka.bootstrap.servers",
        TEXT,
        None,
        "The same as Kafka names it; the first server that answers is used, port 9092 becomes 9094. "
        "`url` wins.",
        ("bootstrap.servers", "bootstrapServers"),
        check=_servers,
    ),
    DataSourceOption(
        "token", TEXT, None, "Token that says who reads or writes; `SPARROW_TOKEN`.", is_secret=True, show=""
    ),
    DataSourceOption("tokenFile", TEXT, None, "File on the driver whose first line is the token."),
    DataSourceOption("user", TEXT, None, "User that logs in; `SPARROW_USER`.", ("kafka.sasl.username",)),
    DataSourceOption(
        "password",
        TEXT,
        None,
        "The password of `user`; `SPARROW_PASSWORD`.",
        ("kafka.sasl.password",),
        is_secret=True,
    ),
    DataSourceOption(
        "passwordFile", TEXT, None, "File on the driver whose first line is the password.", show=""
    ),
    DataSourceOption(
        "caFile",
        TEXT,
        None,
        "PEM file of the authorities that may vouch for the broker; `SPARROW_CA_FILE`.",
        ("kafka.ssl.ca.location", "kafka.ssl.truststore.location"),
        check=_pem,
        show="the system's",
    ),
    DataSourceOption(
        "certificateFile",
        TEXT,
        None,
        "PEM file of the certificate to show to the broker; `SPARROW_CERTIFICATE_FILE`.",
        ("kafka.ssl.certificate.location", "kafka.ssl.keystore.location"),
        check=_pem,
    ),
    DataSourceOption(
        "keyFile",
        TEXT,
        None,
        "PEM file of its key; `SPARROW_KEY_FILE`.",
        ("kafka.ssl.key.location",),
        check=_pem,
        show="in `certificateFile`",
    ),
    DataSourceOption(
        "clientName",
        TEXT,
        "sparrow-spark",
        "Name of the connections in the broker's lists and logs.",
        ("kafka.client.id",),
    ),
    DataSourceOption("connectTimeout", _TIMEOUT, 10_000, "Maximum time to open a connection."),
    DataSourceOption(
        "callTimeout",
        _TIMEOUT,
        60_000,
        "Maximum time for a response of the broker.",
        ("kafka.request.timeout.ms",),
        show="60s",
    ),
    DataSourceOption(
        "retries",
        integer(0, 100),
        3,
        "Number of further tries to connect; a process that has reached the broker before waits for it for "
        "a minute, too.",
        ("kafka.retries", "fetchOffset.numRetries"),
    ),
    DataSourceOption(
        "kafka.security.protocol",
        choice(*_PROTOCOLS),
        None,
        "`SSL` and `SASL_SSL`: with TLS, for `kafka.bootstrap.servers`; a `url` says it by `sparrows://`.",
    ),
    DataSourceOption(
        "kafka.sasl.mechanism",
        choice(*_MECHANISMS),
        None,
        "Taken for what it is; user and password count.",
    ),
    DataSourceOption(
        "kafka.sasl.jaas.config",
        TEXT,
        None,
        "User and password are taken out of it.",
        check=_jaas,
        is_secret=True,
    ),
    DataSourceOption("kafka.ssl.truststore.type", choice("PEM"), None, "Only PEM."),
    DataSourceOption("kafka.ssl.keystore.type", choice("PEM"), None, "Only PEM."),
)
"""Options that source and sink have in common."""


def with_connection(
    declared: Iterable[DataSourceOption],
    *,
    rules: Iterable[Rule] = (),
    advice: Mapping[str, str] | None = None,
) -> Options:
    """Return the options of a source or a sink together with those of the connection. Their own
    options win over Kafka's tuning of the same name.
    """
    return Options((*declared, *CONNECTION), (*rules, _conflicts), {**REFUSED, **(advice or {})}, IGNORED)


def target_of(values: Mapping[str, Any]) -> Target:
    """Return the broker and the login of the options, or else of the environment.

    Raises:
        InvalidArgument: a URL of the environment or a file of a secret cannot be used.
    """
    token, user, password = _credentials(values)
    url = _url_of(values)
    if token is not None or user is not None:
        url = _without_credentials(url)
    return Target(
        url=url,
        token=token,
        user=user,
        password=password,
        ca_file=values["caFile"] or _environment("CA_FILE"),
        certificate_file=values["certificateFile"] or _environment("CERTIFICATE_FILE"),
        key_file=values["keyFile"] or _environment("KEY_FILE"),
        connect_timeout_s=values["connectTimeout"] / 1000,
        call_timeout_s=values["callTimeout"] / 1000,
        retries=values["retries"],
        client_name=values["clientName"],
    )


def _conflicts(values: Values) -> Iterable[str]:
    ways = [name for name in ("token", "tokenFile", "user") if values[name] is not None]
    if len(ways) > 1:
        yield f"{' and '.join(ways)} are given together; log in as one of them"
    if values["password"] is not None and values["passwordFile"] is not None:
        yield "password and passwordFile are given together; give one"
    if values["user"] is None and _is_any(values, "password", "passwordFile") and not _environment("USER"):
        yield "there is a password and no user; give both"
    if (
        values["keyFile"] is not None
        and values["certificateFile"] is None
        and not _environment("CERTIFICATE_FILE")
    ):
        yield "there is a keyFile and no certificateFile; give both"
    yield from _without_tls(values)


def _without_tls(values: Values) -> Iterable[str]:
    """Refuse options that ask for TLS with a connection that has none."""
    asking = []
    if str(values["kafka.security.protocol"]).endswith("SSL"):
        asking.append("kafka.security.protocol")
    if values["url"] is not None:
        asking += [name for name in ("caFile", "certificateFile") if values[name] is not None]
    if asking and not _url_of(values).startswith(f"{TLS_SCHEME}://"):
        yield f"TLS is asked for by {' and '.join(asking)}, and the url has none; let it begin with {TLS_SCHEME}://"


def _is_any(values: Mapping[str, Any], *names: str) -> bool:
    return any(values[name] is not None for name in names)


def _url_of(values: Mapping[str, Any]) -> str:
    if values["url"] is not None:
        return str(values["url"])
    if values["kafka.bootstrap.servers"] is not None:
        has_tls = str(values["kafka.security.protocol"]).endswith("SSL")
        return f"{TLS_SCHEME if has_tls else SCHEME}://{_hosts(values['kafka.bootstrap.servers'])}"
    url = _environment("URL") or DEFAULT_URL
    parse_url(url)
    return url


def _hosts(text: str) -> str:
    """Return "broker.lan:9094,other:9094" for "PLAINTEXT://broker.lan:9092, other:9092"."""
    found = []
    for server in [each for each in text.split(",") if each.strip()] or [text]:
        address = parse_url(f"{SCHEME}://{server.strip().rpartition('://')[2]}")
        port = _NATIVE_PORT if address.port == _KAFKA_PORT else address.port
        found.append(f"[{address.host}]:{port}" if ":" in address.host else f"{address.host}:{port}")
    return ",".join(found)


def _without_credentials(url: str) -> str:
    """Remove the credentials of the URL, where options have credentials, which win."""
    scheme, colon, rest = url.rpartition("://")
    return f"{scheme}{colon}{rest.rpartition('@')[2]}"


def _credentials(values: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Return token, user and password; all None: those of the URL, if any."""
    token = values["token"] or _first_line(values["tokenFile"])
    user, password = values["user"], values["password"] or _first_line(values["passwordFile"])
    if token is None and user is None and values["kafka.sasl.jaas.config"] is not None:
        user, password = _login(values["kafka.sasl.jaas.config"])
    if token is not None:
        return token, None, None
    if user is not None:
        return None, user, password or _environment("PASSWORD")
    if "@" in _url_of(values):
        return None, None, None
    if _environment("USER"):
        return None, _environment("USER"), password or _environment("PASSWORD")
    return _environment("TOKEN"), None, None


def _login(text: str) -> tuple[str, str]:
    found = {name: double or single for name, double, single in _LOGIN.findall(text)}
    return tuple(re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password"))  # type: ignore[return-value]


def _first_line(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline().rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(
            f"the secret cannot be read from {path}: {reason}; the file must be on the driver"
        ) from None
    if not line:
        raise InvalidArgument(f"{path} has no secret: its first line is empty")
    return line


def _environment(name: str) -> str | None:
    return os.environ.get(f"SPARROW_{name}") or None
