"""llmgw-router: OpenAI-compatible HTTP in front of the engines."""
