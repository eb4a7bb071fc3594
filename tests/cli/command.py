"""Run the command in this process (`apart` runs it in another) and return its output and exit code."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from apart import Ended
from layerwise.cli.app import main


def layerwise(*arguments: str | Path) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with patch.object(sys, "argv", ["layerwise", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Ended(code, out.getvalue(), err.getvalue())


def refused(*arguments: str | Path) -> str:
    ended = layerwise(*arguments)
    assert ended.code == 2, ended
    assert ended.out == ""
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    return ended.err.partition("error: ")[2]


HEAVY = ("lm_eval", "pandas", "plotly", "scipy.stats", "torch", "transformers")


def heavy_imports(*arguments: str | Path) -> list[str]:
    """Run the command in a new process and return the libraries it imports that take seconds."""
    code = (
        "import sys; from layerwise.cli.app import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print('\\n', *({set(HEAVY)!r} & sys.modules.keys()))"
    )
    words = [sys.executable, "-c", code, *map(str, arguments)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1].split()
