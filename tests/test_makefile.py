"""What the two commands of the README install: the demo what it needs, the tests the rest."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAKE = ("env", "-u", "MAKELEVEL", "-u", "MAKEFLAGS", "make")
"""`make test` runs these tests, so its variables are removed."""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def planned(target: str, folder: Path) -> list[str]:
    asked = [*MAKE, "--dry-run", target, f"VENV={folder / 'venv'}"]
    steps = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("echo ")
    return [step for step in steps if "pip install" in step]


def test_the_demo_installs_no_tests_and_the_tests_add_them(tmp_path: Path) -> None:
    demo = planned("demo", tmp_path)
    assert len(demo) == 2
    assert not any("[dev]" in step for step in demo)
    for target in ("test", "check"):
        *same, rest = planned(target, tmp_path)[:3]  # `check` starts make again
        assert same == demo
        assert "--editable '.[dev]'" in rest


@pytest.mark.parametrize(("target", "extra"), [("docs", "docs"), ("wheel", "release")])
def test_the_site_and_the_wheel_add_their_own_tools_alone(tmp_path: Path, target: str, extra: str) -> None:
    *same, rest = planned(target, tmp_path)
    assert same == planned("demo", tmp_path)
    assert f"--constraint constraints.txt --editable '.[{extra}]'" in rest
    assert "[dev]" not in rest


def test_a_step_that_fails_ends_with_its_status_and_leaves_nothing_running(tmp_path: Path) -> None:
    file = tmp_path / "Makefile"
    text = (ROOT / "Makefile").read_text()
    file.write_text(f"{text[: text.index('.PHONY')]}\nfails:\n\t$(call say,a step,exit_3() {{ return 3; }}; exit_3)\n")
    ended = subprocess.run([*MAKE, "-f", file, "fails"], capture_output=True, text=True, check=False, timeout=10)
    assert ended.returncode == 2
    assert ended.stdout.startswith("a step\n")
    assert "Error 3" in ended.stderr
