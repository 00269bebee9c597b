"""Hosts for the lab journeys."""

from tests.agent.conftest import engine, tls, weights

__all__ = ["engine", "tls", "weights"]
