"""llmgw: an LLM gateway that runs its own private cluster."""

__version__ = "0.1.0"
