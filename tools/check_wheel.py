"""Install the wheel in an empty environment, and use it in an empty directory, without a network.

    python tools/check_wheel.py dist build/wheelhouse

`make wheel` puts the wheel into the first directory, and the wheels of its dependencies into the second. pip uses no
other source, and the proxies are invalid, so that any download fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from zipfile import ZipFile

NOWHERE = "http://127.0.0.1:9"  # the port of the discard protocol, where nothing listens
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)

COMMANDS = (
    "layerwise --version",
    'layerwise plan "0-4 (5|6|7) 8-11"',
    'layerwise verify demo --plan "0-4 6-11"',
    "layerwise sweep demo --families leave_one_out --tokens 400 --no-similarity --run run",
    "layerwise save demo --plan 0-5 --output shallow",
    "python -c \"import layerwise; print(layerwise.load('demo-vit').depth)\"",
)
"""Commands to test: the bundled models, a text, a report and a checkpoint."""

CARRIED = (
    "layerwise/py.typed",
    "layerwise/models/demo/model.safetensors",
    "layerwise/models/demo_vit/model.safetensors",
    "layerwise/page/plotlyjs/plotly-cartesian.min.js",
)
"""Files that the package must contain."""


def only_wheel(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    missing = set(CARRIED) - names
    strange = {name for name in names if not name.startswith("layerwise") or "__pycache__" in name}
    if missing or strange:
        raise SystemExit(f"{wheel.name} lacks {sorted(missing)} and should not have {sorted(strange)}")


def run(command: str | list[str], folder: Path, environment: dict[str, str]) -> None:
    print(f"$ {command if isinstance(command, str) else ' '.join(command)}", flush=True)
    subprocess.run(command, shell=isinstance(command, str), cwd=folder, env=environment, check=True, timeout=900)


def main(distribution: str, wheelhouse: str) -> None:
    wheel = only_wheel(Path(distribution)).resolve()
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as root:
        home, folder = Path(root) / "environment", Path(root) / "empty"
        folder.mkdir()
        venv.create(home, with_pip=True)
        programs = home / "bin"
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        environment = {
            **outside,
            **OFFLINE,
            "HOME": root,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(Path(wheelhouse).resolve()),
            "PIP_CONFIG_FILE": os.devnull,
        }
        run([str(programs / "python"), "-m", "pip", "install", "--quiet", str(wheel)], folder, environment)
        for command in COMMANDS:
            run(command, folder, environment)
    print(f"{wheel.name} works in an empty environment, offline.")


if __name__ == "__main__":
    main(*sys.argv[1:])
