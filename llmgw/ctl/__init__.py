"""llmgw ctl: looks and acts for scripts and people."""
