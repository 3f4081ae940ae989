"""The receive budget: grants are in order, and never more than there is."""

from __future__ import annotations

from sparrow.frontends.transport.receive_budget import ReceiveBudget


def test_the_budget_grants_in_order_and_never_more_than_there_is() -> None:
    budget = ReceiveBudget(100)
    granted: list[str] = []
    assert budget.reserve(60, lambda: granted.append("never"))
    assert not budget.reserve(60, lambda: granted.append("b"))
    assert not budget.reserve(10, lambda: granted.append("c")), "the small one must not overtake"
    budget.release(60)
    assert granted == ["b", "c"]
    assert budget.reserved_bytes == 70


def test_a_frame_over_the_whole_budget_is_granted_alone() -> None:
    budget = ReceiveBudget(100)
    granted: list[str] = []
    assert budget.reserve(10, lambda: None)
    assert not budget.reserve(500, lambda: granted.append("big"))
    assert not budget.reserve(10, lambda: granted.append("small"))
    budget.release(10)
    assert granted == ["big"]
    budget.release(500)
    assert granted == ["big", "small"]
    budget.release(10)
    assert (budget.reserved_bytes, budget.waiting) == (0, 0)


def test_a_client_that_gives_up_waiting_lets_the_next_one_pass() -> None:
    budget = ReceiveBudget(100)
    granted: list[str] = []

    def big() -> None:
        granted.append("big")

    assert budget.reserve(90, lambda: None)
    assert not budget.reserve(90, big)
    assert not budget.reserve(10, lambda: granted.append("small"))
    budget.withdraw(big)
    assert granted == ["small"]
