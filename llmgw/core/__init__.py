"""Decisions and the vocabulary they use: values in, values out; no IO, clock, random, async or logging."""
