"""A whole cluster on this machine, each part a process of its own: what `llmgw demo` and the journeys run."""
