"""What every test finds, and leaves as it was."""

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair; a test that bounds a time does so itself.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: to look through them for garbage each time took a fifth of a test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A daemon's `main` sets logging up for its whole process; here that is the process of all later tests too."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # pytest's own are of classes of their own
            root.removeHandler(handler)
