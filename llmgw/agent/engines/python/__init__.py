"""Engines that are virtual environments of locked packages: made by uv without a network, and seen to run."""
