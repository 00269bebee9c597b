"""Which engine should which node have? The control plane's part: wishes, releases, orders, turns, and what is told."""
