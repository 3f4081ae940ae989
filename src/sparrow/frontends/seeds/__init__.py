"""Listeners for the unmodified clients of five other small brokers (`docs/seeds.md`)."""

from sparrow.frontends.seeds.frontend import SeedFrontend
from sparrow.frontends.seeds.settings import SeedSettings

__all__ = ["SeedFrontend", "SeedSettings"]
