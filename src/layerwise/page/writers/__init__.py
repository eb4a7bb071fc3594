"""A kind of run as HTML, as Markdown and for a terminal: one function an output, for all kinds."""

from layerwise.page.writers.html import write_chapters
from layerwise.page.writers.text import markdown_parts, terminal_lines

__all__ = ["markdown_parts", "terminal_lines", "write_chapters"]
