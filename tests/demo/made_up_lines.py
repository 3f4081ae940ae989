"""Lines as programs write them, with the kind and the time that a person sees in them; made up."""

from __future__ import annotations

YEAR = 2026
"""Of times that do not tell theirs."""

TEXT = {
    "iso": [
        ("2026-05-01 12:00:03,447 - INFO  [main:Peer@774] - took 3200 ms", "INFO", "2026-05-01 12:00:03"),
        ("2026-05-01T12:00:04.1Z WARNING disk ERROR follows", "WARN", "2026-05-01 12:00:04"),
        ("\tat org.example.Main(Main.java:7)", "other", None),
        ("2026-02-30 10:00:00 DEBUG no such day", "DEBUG", None),
        ("2026-05-01 25:00:00 INFORMATION no such hour", "other", None),
    ],
    "go": [("2026/05/01 12:00:03 ERROR dial tcp: refused", "ERROR", "2026-05-01 12:00:03")],
    "access": [
        (
            '10.0.0.1 - ada [01/May/2026:12:00:03 +0200] "GET /a?b=1 HTTP/1.1" 200 17 "-" "M/5.0 404 "',
            "2xx",
            "2026-05-01 12:00:03",
        ),
        ('10.0.0.1 - - [11/Dec/2026:00:00:00 +0000] "-" 408 0', "4xx", "2026-12-11 00:00:00"),
        ('10.0.0.1 - - [11/Dec/2026:00:00:00 +0000] "a "quote" 200 0', "other", "2026-12-11 00:00:00"),
    ],
    "apache": [
        ("[Fri May 01 12:00:03 2026] [error] child in state 6", "ERROR", "2026-05-01 12:00:03"),
        ("[Fri May  1 12:00:03 2026] [core:notice] ready", "NOTICE", "2026-05-01 12:00:03"),
    ],
    "dots": [("- 2026-05-01-12.00.03.675872 node RAS INFO parity", "INFO", "2026-05-01 12:00:03")],
    "redis": [("1:M 3 May 2026 12:00:03.123 * INFO Ready", "INFO", "2026-05-03 12:00:03")],
    "german": [("03.05.2026 12:00:03 FATAL Ende", "FATAL", "2026-05-03 12:00:03")],
    "short year": [("26/05/01 12:00:03 INFO Memory: free", "INFO", "2026-05-01 12:00:03")],
    "digits": [("260501 120003 148 WARN dfs: slow", "WARN", "2026-05-01 12:00:03")],
    "pipes": [("20260501-2:5:3:606|Step_Counter|3000|flush 7", "Step_Counter", "2026-05-01 02:05:03")],
    "syslog": [
        ("May  1 12:00:03 box sshd(pam)[199]: failure; uid=0", "sshd", "2026-05-01 12:00:03"),
        ("<34>May 11 12:00:03 box su: session opened", "su", "2026-05-11 12:00:03"),
        ("Feb 29 12:00:03 box su: no such day in this year", "su", None),
    ],
    "seconds": [("1777636803.120  5 10.0.0.1 TCP_MISS level=info 7", "INFO", "2026-05-01 12:00:03")],
    "milliseconds": [("1777636803120 [warn] slow", "WARN", "2026-05-01 12:00:03")],
}

JSON = {
    "levels": [
        ('{"ts": "2026-05-01T12:00:03.5Z", "level": "warning", "n": 1}', "WARN", "2026-05-01 12:00:03"),
        ('{"ts": "2026-05-01 12:00:04", "level": "Error", "level": "info"}', "ERROR", "2026-05-01 12:00:04"),
        ('{"ts": null, "level": {"a": 1}}', "other", None),
        ('{"ts": 7, "level": null}', "other", None),
        ('{"ts": "2026-05-01 12:00:05", "level": 30}', "30", "2026-05-01 12:00:05"),
        ('{"level": "info", "ts": "2026-05-01 12:00:0', "other", None),
        ("no object", "other", None),
        ("[1, 2]", "other", None),
        ('  {"level": "debug"} and more', "DEBUG", None),
    ],
    "statuses": [
        ('{"@timestamp": 1777636803, "status": 204}', "2xx", "2026-05-01 12:00:03"),
        ('{"@timestamp": 1777636803, "status": "503"}', "5xx", "2026-05-01 12:00:03"),
    ],
    "types": [
        (
            '{"time": 1777636803120, "type": "page \\"view\\"", "user": 1}',
            'page "view"',
            "2026-05-01 12:00:03",
        ),
        ('{"time": 1777636804120, "type": true, "user": 2}', "true", "2026-05-01 12:00:04"),
        ('{"time": 1777636804120, "type": 1.50, "user": 3}', "1.5", "2026-05-01 12:00:04"),
        ('{"time": 1777636804120, "type": "", "user": 3}', "other", "2026-05-01 12:00:04"),
    ],
}
