"""Which HTTP/2 events are handled: those that grpclib knows, and the others are ignored."""

from grpclib.protocol import EventsProcessor
from h2.events import Event


class Tolerant(EventsProcessor):
    """Frames of unknown types and their events are ignored, as RFC 9113 §5.5 asks, instead of ending the connection."""

    def process(self, event: Event) -> None:
        """Handle the event if there is a handler for it."""
        handle = getattr(self, "processors", {}).get(event.__class__)
        if handle is not None:
            handle(event)
