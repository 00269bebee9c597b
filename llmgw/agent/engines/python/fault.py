"""What went wrong with an environment? One line: subject, fact, way out."""


class EnvironmentFault(Exception):
    """An environment cannot be made, or what was made does not run."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full
        """It is for want of room on the disk."""
