"""The cluster's certificate authority: make it, issue from it."""
