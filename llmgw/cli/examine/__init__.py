"""What `llmgw doctor` looks at: a module for each kind of check, and one for each kind of host."""
