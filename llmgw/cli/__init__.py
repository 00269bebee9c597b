"""Entry points that use several programs: the llmgw command, pki, demo."""
