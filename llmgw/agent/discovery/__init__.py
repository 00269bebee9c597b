"""What a node finds out about itself."""
