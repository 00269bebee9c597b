"""Processes that outlive the agent: how they are started, found again and ended."""
