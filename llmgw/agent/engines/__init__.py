"""The engines that a node has, and how each is started and asked."""
