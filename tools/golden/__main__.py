"""Golden runs: `python -m tools.golden write|run|check|page KIND ...`, from the root of the repository.

write   render the frozen outputs again from the stored rows, after an intended change
run     run the commands again, replace the stored rows, and render the outputs
check   run the commands again, and compare their rows with the stored ones, bit for bit
page    write the report as FOLDER/KIND/report.html
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.golden.commands import carry_out, differences, is_planted
from tools.golden.outputs import COMPARED, FOLDER, kinds, page_of, stored, write_outputs
from tools.golden.stored_run import write_run


def main() -> int:
    """Run an action on each kind. The exit status is 1 if any rows differ."""
    asked = _arguments()
    unequal = 0
    for kind in asked.kinds or kinds():
        begun = time.monotonic()
        if asked.action in ("run", "check") and (kind in COMPARED or is_planted(kind)):
            print(f"{kind}: skipped, because no command makes its rows", flush=True)
            continue
        if asked.action == "check":
            found = list(differences(stored(kind), carry_out(kind)))
            unequal += bool(found)
            print("\n  ".join([f"{kind}: {'not equal' if found else 'equal to the bit'}", *found]), flush=True)
            continue
        if asked.action == "run":
            write_run(FOLDER / kind, carry_out(kind))
        if asked.action == "page":
            place = asked.folder / kind
            place.mkdir(parents=True, exist_ok=True)
            (place / "report.html").write_text(page_of(kind), encoding="utf-8")
        else:
            write_outputs(kind)
        print(f"{kind}: {asked.action}, {time.monotonic() - begun:.1f} s", flush=True)
    return 1 if unequal else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.golden", description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("write", "run", "check", "page"))
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="folders of tests/golden; all by default")
    parser.add_argument("--folder", type=Path, default=Path("pages"), help="where page writes (default: pages)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
