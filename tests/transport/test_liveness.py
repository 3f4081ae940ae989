"""Liveness of a connection: which peers are alive, and which must be closed."""

from __future__ import annotations

from typing import Final

from sparrow.frontends.transport.liveness import Deadlines, Liveness, Verdict

MIB: Final = 1 << 20
DEADLINES: Final = Deadlines(login_s=10, idle_s=60, stall_s=30)


def check(liveness: Liveness, now: float, received: int = 0, **seen: int) -> Verdict:
    unsent = seen.pop("unsent", 0)
    return liveness.check(now, DEADLINES, received_bytes=received, unsent_bytes=unsent, **seen)  # type: ignore[arg-type]


def test_a_client_that_sends_or_takes_bytes_is_alive() -> None:
    liveness = Liveness(0.0)
    assert check(liveness, 1, 10) is Verdict.ALIVE
    assert check(liveness, 2, 10) is Verdict.SILENT
    assert check(liveness, 50, 10, unsent=5000) is Verdict.SILENT
    assert check(liveness, 60, 10, unsent=4000) is Verdict.ALIVE
    assert check(liveness, 119, 10, unsent=4000) is Verdict.SILENT
    assert check(liveness, 121, 10, unsent=4000) is Verdict.IDLE


def test_a_client_that_is_made_to_wait_is_neither_idle_nor_stalled() -> None:
    liveness = Liveness(0.0)
    for now in range(0, 1000, 10):
        assert check(liveness, now, 100, unfinished_bytes=MIB, is_paused=True) is Verdict.ALIVE


def test_an_unfinished_frame_must_progress_by_a_share_of_its_size() -> None:
    liveness = Liveness(0.0)
    received = 0
    for now in range(1, 31):
        received += 1000  # 30 KB of 16 MiB within 30 s: far below a twentieth
        assert check(liveness, now, received, unfinished_bytes=16 * MIB) is Verdict.ALIVE
    assert check(liveness, 32, received, unfinished_bytes=16 * MIB) is Verdict.STALLED


def test_a_slow_but_steady_frame_is_fine() -> None:
    liveness = Liveness(0.0)
    for now in range(1, 300):
        assert check(liveness, now, now * 40_000, unfinished_bytes=16 * MIB) is Verdict.ALIVE


def test_without_deadlines_nothing_is_late() -> None:
    assert Liveness(0.0).check(1e9, Deadlines(), received_bytes=0, unsent_bytes=0) is Verdict.SILENT


def test_a_client_that_does_not_log_in_is_late() -> None:
    liveness = Liveness(0.0)
    assert check(liveness, 9, 5, is_known=False) is Verdict.ALIVE
    assert check(liveness, 11, 9, is_known=False) is Verdict.NOT_KNOWN
    assert check(liveness, 12, 9) is Verdict.SILENT


def test_a_client_that_the_broker_works_for_is_not_idle() -> None:
    liveness = Liveness(0.0)
    assert check(liveness, 100, has_work=True) is Verdict.SILENT
    assert check(liveness, 159) is Verdict.SILENT
    assert check(liveness, 161) is Verdict.IDLE


def test_a_client_that_takes_nothing_is_late_although_it_sends() -> None:
    deadlines = Deadlines(unread_s=30)
    liveness = Liveness(0.0)
    for now in range(1, 32):
        seen = liveness.check(now, deadlines, received_bytes=now, unsent_bytes=100)
        assert seen is Verdict.ALIVE
    assert liveness.check(32, deadlines, received_bytes=32, unsent_bytes=100) is Verdict.UNREAD
    assert liveness.check(33, deadlines, received_bytes=33, unsent_bytes=99) is Verdict.ALIVE


def test_a_whole_message_must_be_complete_in_time_whatever_its_progress() -> None:
    deadlines = Deadlines(stall_s=30, is_whole_message=True)
    liveness = Liveness(0.0)
    for now in range(1, 32):
        seen = liveness.check(now, deadlines, received_bytes=now * MIB, unsent_bytes=0, unfinished_bytes=99)
        assert seen is Verdict.ALIVE
    liveness.message_completed()
    for now in range(32, 63):
        seen = liveness.check(now, deadlines, received_bytes=now * MIB, unsent_bytes=0, unfinished_bytes=99)
        assert seen is Verdict.ALIVE
    seen = liveness.check(63, deadlines, received_bytes=63 * MIB, unsent_bytes=0, unfinished_bytes=99)
    assert seen is Verdict.STALLED


def test_an_ended_connection_has_time_while_its_peer_takes_bytes() -> None:
    deadlines = Deadlines(closing_s=5)
    liveness = Liveness(0.0)
    for now in range(100):
        assert not liveness.is_late_to_close(now, deadlines, 1000 - now)
    assert not liveness.is_late_to_close(104, deadlines, 901)
    assert liveness.is_late_to_close(105, deadlines, 901)
