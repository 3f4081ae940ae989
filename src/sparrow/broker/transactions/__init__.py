"""Transactions (KIP-98, KIP-360, KIP-447, KIP-890): begin at `state.py` for the rules, `coordinator.py` for who calls them."""
