"""Listeners for the unmodified clients of five other small brokers (`docs/seeds.md`)."""
