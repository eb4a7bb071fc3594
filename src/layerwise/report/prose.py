"""The words beside the numbers: Markdown files in the package, one for each kind of run.

    # healing
    The lead of the section whose anchor is `healing`: how to read what follows.

    ## nats
    The note under the picture `nats`.

A file holds paragraphs alone. `words("healing")` is the lead, `words("healing/nats")` the note.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prose(kind: str) -> dict[str, str]:
    """What the file of a kind says, by the section, and by the section and the name of a part."""
    text = files("layerwise.report").joinpath(f"kinds/{kind}.md").read_text(encoding="utf-8")
    words: dict[str, list[str]] = {}
    section, key = "", ""
    for line in text.splitlines():
        if line.startswith("# "):
            section = key = line[2:].strip()
        elif line.startswith("## "):
            key = f"{section}/{line[3:].strip()}"
        elif line.strip():
            words.setdefault(key, []).append(line.strip())
    return {name: " ".join(lines) for name, lines in words.items()}
