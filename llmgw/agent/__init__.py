"""llmgw-agent: one on every node."""
