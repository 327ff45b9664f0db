"""Text of others as a terminal may show it: who may write an object must not command the reader's terminal.

Escape sequences move the cursor, set the window's title and hide lines (CVE-2021-25743, kubectl); characters that turn
the direction of writing show names as what they are not.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_TABLE = dict.fromkeys((*_CONTROLS, *_DIRECTIONS), _INSTEAD)
_LINES = _TABLE | {ord("\n"): "\n", ord("\t"): " "}


def plain(text: str) -> str:
    """Return the text on one line, with every control character replaced."""
    return text.translate(_TABLE)


class PlainConsole(Console):
    """A console that styles text itself, and prints no control character that stood in it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return what is to be printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(_LINES), segment.style)
