"""llmgwd: the control plane."""
