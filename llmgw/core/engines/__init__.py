"""What engines are, which files of theirs a node needs, and how an install goes; of one node at a time."""
