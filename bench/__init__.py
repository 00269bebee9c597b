"""Measures llmgw against its goals and, where there is one, against a peer that runs beside it."""
