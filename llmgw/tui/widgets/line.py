"""How is a piece of text shown that changes often and keeps its size?"""

from textual.content import Content
from textual.widget import Widget


class Line(Widget):
    """Styled text in as many lines as the stylesheet gives it; drawn again only when it reads differently."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._content = Content()

    def show(self, content: Content) -> None:
        """Show this from now on."""
        if content != self._content or content.spans != self._content.spans:
            self._content = content
            self.refresh()

    def render(self) -> Content:
        """Textual asks what to draw."""
        return self._content
