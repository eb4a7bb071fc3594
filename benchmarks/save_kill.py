"""Kill `layerwise save` at random moments: afterwards there is no folder, or a whole one.

    python benchmarks/save_kill.py [--kills 20] [--seed 0]

Each kill is SIGKILL, at a moment that is uniform over 1.2 times what an undisturbed run takes. A folder is whole if
transformers' files are all there, every tensor has the bytes of an undisturbed run, and nothing else lies beside it but
a hidden draft, which the next run removes.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from save_stream import make_model


def main() -> None:
    """Kill, and look at what is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    home = Path("/tmp/save_kill")
    shutil.rmtree(home, ignore_errors=True)
    make_model(home / "model", 448, 12, 9450, 10**9)

    def command(out: Path) -> list[str]:
        options = ["--plan", "0-7 6-11", "--output", str(out), "--no-prove", "--quiet"]
        return [sys.executable, "-m", "layerwise", "save", str(home / "model"), *options]

    begin = time.perf_counter()
    subprocess.run(command(home / "whole"), check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    names = sorted(path.name for path in (home / "whole").iterdir())
    draw = random.Random(given.seed)
    whole = 0
    for _ in range(given.kills):
        out = home / "out"
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL)
        time.sleep(draw.uniform(0, 1.2 * seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if out.exists():
            _, differ, failed = filecmp.cmpfiles(home / "whole", out, names, shallow=False)
            assert sorted(path.name for path in out.iterdir()) == names, "a folder that is not whole"
            assert not differ, differ
            assert not failed, failed
            shutil.rmtree(out)
            whole += 1
    subprocess.run(command(home / "out"), check=True, stdout=subprocess.DEVNULL)
    drafts = [path.name for path in home.iterdir() if path.name.startswith(".")]
    assert not drafts, drafts
    print(f"{given.kills} kills within {1.2 * seconds:.1f} s: {whole} whole folders, {given.kills - whole} times none")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
