"""llmgw console: the terminal UI."""
