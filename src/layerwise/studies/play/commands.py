"""Commands of layerwise that the page starts in another process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from layerwise.data.text.documents import split_at_blank_lines
from layerwise.runner.verb import load_verb, write_command
from layerwise.swarm.serve.responses import RequestError, Write, event

TEXTS = Path("runs") / "play"
"""Directory of pasted texts that a sweep or search reads."""


def store_text(text: str) -> str:
    """Write a pasted text to a file whose documents are its paragraphs, and return its path."""
    TEXTS.mkdir(parents=True, exist_ok=True)
    path = TEXTS / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
    path.write_text("\n<|endoftext|>\n".join(split_at_blank_lines(text)) + "\n", encoding="utf-8")
    return str(path)


async def run_command(lock: asyncio.Lock, verb: str, options: dict[str, Any], write: Write) -> None:
    """Run a verb in another process and write its lines, unless another one runs; a disconnect terminates it."""
    if lock.locked():
        raise RequestError(409, "busy", "Another command is running. Stop it, or wait until it ends.")
    async with lock:
        command = write_command(load_verb(verb), options)
        await write(event({"line": f"$ {command}"}))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *shlex.split(command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        )
        assert process.stdout is not None, "the output is a pipe"
        report = None
        try:
            async for line in (raw.decode("utf-8", "replace").rstrip() async for raw in process.stdout):
                report = line.removeprefix("report: ") if line.startswith("report: ") else report
                await write(event({"line": line}))
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        await write(event({"done": True, "exit": code, "report": report, "path": options.get("output")}))
