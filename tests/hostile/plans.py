"""Bad plans and bad growth schedules: texts that ask for more than a machine has, and YAML that nobody meant well."""

from __future__ import annotations

from pathlib import Path

from hostile.case import Case
from hostile.material import Content, device, empty_folder, loop, nothing, pipe, put, texts

Says = tuple[str, ...] | None


def _plan(case: str, text: str, *says: str) -> Case:
    return Case(f"a plan: {case}", ("plan", "--depth", "12", "--", text), says)


def _slices(folder: Path) -> None:
    """Twenty million layers in two thousand lines."""
    lines = "- sources: [{model: a/b, layer_range: [0, 9999]}]\n" * 2_000
    (folder / "merge.yaml").write_text(f"merge_method: passthrough\nslices:\n{lines}")


PLANS = (
    Case("a plan: 2,000 slices of a file", ("plan", "--from", "merge.yaml"), ("19,998,000 layers", "10,000"), _slices),
    _plan("nothing", "", "at least one layer"),
    _plan("a count of nine hundred million", "0*999999999", "at most 5 digits"),
    _plan("a count of 5,000 digits", "0*" + "9" * 5_000, "digits"),
    _plan("a layer of 5,000 digits", "9" * 5_000, "digits"),
    _plan("a layer of 19 digits", "9999999999999999999", "digits"),
    _plan("a range of a million million", "0-1000000000000", "10000"),
    _plan("a range backwards of a million million", "1000000000000-0", "at most 5 digits"),
    _plan("counts of counts", "[[[[[[0*99]*99]*99]*99]*99]*99]*99", "10,000"),
    _plan("groups nested 10,000 deep", "(" * 10_000 + "0" + ")" * 10_000, "deeper than 50"),
    _plan("blocks nested 10,000 deep", "[" * 10_000 + "0" + "]" * 10_000, "deeper than 50"),
    _plan("groups that are never closed", "(" * 10_000, "deeper than 50"),
    _plan("a group of a hundred thousand branches", "(" + "|".join(["0"] * 50_000) + ")", "10,000"),
    _plan("a text of 100,000 layers", "0 " * 60_000, "10,000"),
    _plan("digits of another script", "٣ ४", "٣"),
    _plan("digits set high", "²", "²"),
    _plan("digits as wide as a character", "１", "１"),
    _plan("a dash of another kind", "0–5", "–"),
    _plan("a space of no width", "0\u200b1", r"'\u200b' has no meaning"),
    _plan("an override of direction", "0 \u202e1", r"'\u202e' has no meaning"),
    _plan("a line break and an escape", "0\n\x1b[31m1", r"'\x1b' has no meaning"),
    _plan("half of a surrogate pair", "0 \udcff", r"'\udcff' has no meaning"),
    _plan("a gain that is not finite", "(0|1):gain=1e999", "gain"),
    _plan("a gain that is no number", "(0|1):gain=nan", "gain"),
    _plan("a gain of 5,000 digits", "(0|1):gain=" + "9" * 5_000, "gain"),
    _plan("a byte of nothing", "0\x001", r"'\x00' has no meaning"),
)


def _schedule(case: str, content: Content, *says: str, name: str = "s.yaml", success: bool = False) -> Case:
    """A training with this schedule."""

    def make(folder: Path) -> None:
        texts(folder)
        put(folder / name, content)

    return Case(f"a schedule: {case}", (*GROW, name), None if success else (name[:40], *says), make)


GROW = ("train", "growth", "--text", "texts", "--dry-run", "--max-length", "32", "--schedule")
GOOD = """\
name: two
depth: 12
phases:
- {name: top, share: 0.25, trains: 8-11}
- {name: rest, share: 0.75, trains: all}
"""


def _laughs(path: Path) -> bytes:
    """Ten lists of ten of the list before: 10^9 words in 424 bytes."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 9)]
    return "\n".join(lines).encode()


def _large_map(path: Path) -> bytes:
    return ("{" + ", ".join(f"k{number}: 0" for number in range(400_000)) + "}").encode()


SCHEDULES = (
    _schedule("nothing", "", "keys and values"),
    _schedule("a list", "[1, 2]", "keys and values"),
    _schedule("bytes", bytes(range(256)), "not UTF-8 text"),
    _schedule("a null byte", "name: a\0b", "YAML"),
    _schedule("a broken mapping", "{name: [", "YAML"),
    _schedule("tabs", "phases:\n\t- name: a", "YAML"),
    _schedule("aliases of aliases", _laughs, "alias"),
    _schedule("aliases as merge keys", "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: [*b, *b]}", "alias"),
    _schedule("an alias of itself", "a: &a [*a]", "alias"),
    _schedule("lists nested 10,000 deep", "[" * 10_000 + "]" * 10_000, "nested too deeply"),
    _schedule("mappings nested 10,000 deep", "{a: " * 10_000 + "}" * 10_000, "nested too deeply"),
    _schedule("indented 600 deep", "".join(" " * depth + "a:\n" for depth in range(600)), "nested too deeply"),
    _schedule("an impossible date for a depth", GOOD.replace("12", "2024-13-45"), "depth", "2024-13-45"),
    _schedule("an impossible time for a share", GOOD.replace("0.25", "2024-01-01 99:99:99"), "share", "99:99"),
    _schedule("a number of 6,000 digits", "depth: " + "9" * 6_000, "4,300 digits"),
    _schedule("a number of 6,000 digits in base 60", "depth: " + "1:" * 6_000 + "1", "4,300 digits"),
    _schedule("an underscored number of 6,000 digits", "depth: " + "9_" * 6_000 + "9", "4,300 digits"),
    _schedule("a hexadecimal number of 6,000 digits", "depth: 0x" + "f" * 6_000, "4,300 digits"),
    _schedule("a tag of Python's", "!!python/object/apply:os.system ['touch it-was-run']", "python/object/apply"),
    _schedule("a tag that nobody knows", "name: !secret abc", "!secret"),
    _schedule("binary that is none", "name: !!binary '===='", "binary"),
    _schedule("a set", "phases: !!set {a, b}", "s.yaml"),
    _schedule("a list for a key", "? [a, b]\n: 1", "s.yaml"),
    _schedule("a mapping for a key", "? {a: 1}\n: 1", "s.yaml"),
    _schedule("a key that stands twice", "name: a\nname: b", "twice"),
    _schedule("two documents", "---\na: 1\n---\nb: 2", "YAML"),
    _schedule("a mapping of 400,000 keys", _large_map, "s.yaml", "MB"),
    _schedule("a word of ten megabytes", lambda path: b"name: " + b"a" * 10_000_000, "MB"),
    _schedule("ten megabytes of comments", lambda path: b"#\n" * 5_000_000, "MB"),
    _schedule("no phases", "name: a\ndepth: 12\nphases: []", "phases"),
    _schedule("phases of numbers", "name: a\ndepth: 12\nphases: [1, 2]", "phase 1"),
    _schedule("a depth of 10^9", GOOD.replace("12", "1000000000"), "depth"),
    _schedule("a depth in words", GOOD.replace("12", "twelve"), "depth"),
    _schedule("a depth that is true", GOOD.replace("12", "true"), "depth"),
    _schedule("a share in words", GOOD.replace("0.25", "some"), "share"),
    _schedule("a share that is not finite", GOOD.replace("0.25", ".inf"), "share"),
    _schedule("a share that is no number", GOOD.replace("0.25", ".nan"), "share"),
    _schedule("a share below zero", GOOD.replace("0.25", "-1"), "share"),
    _schedule("shares that are too many", GOOD.replace("0.75", "0.9"), "share"),
    _schedule("a name that is a number", GOOD.replace("two", "7"), "name"),
    _schedule("a name of a folder above", GOOD.replace("two", "../../up"), "name"),
    _schedule("a phase called like a folder above", GOOD.replace("top", "../../up"), "name"),
    _schedule("layers that are a mapping", GOOD.replace("8-11", "{a: 1}"), "trains"),
    _schedule("layers that are a date", GOOD.replace("8-11", "2024-01-01"), "trains"),
    _schedule("a range of a million million layers", GOOD.replace("8-11", "0-1000000000000"), "trains"),
    _schedule("layers of 5,000 digits", GOOD.replace("8-11", "'" + "9" * 5_000 + "'"), "trains"),
    _schedule("a layer below zero", GOOD.replace("8-11", "-3"), "trains"),
    _schedule("a layer that there is not", GOOD.replace("8-11", "8-99"), "12"),
    _schedule("a key that nobody knows", GOOD + "colour: red\n", "colour"),
    _schedule("a key that is a number", GOOD + "7: red\n", "7"),
    _schedule("a key that is nothing", GOOD + "? \n: red\n", "None"),
    _schedule("a factor in words", GOOD.replace("trains: 8-11", "trains: 8-11, scale: {3: large}"), "scale"),
    _schedule("a factor of 10^400", GOOD.replace("trains: 8-11", f"trains: 8-11, scale: {{3: 1{'0' * 400}}}"), "scale"),
    _schedule("JSON nested too deeply", lambda path: b'{"a":' * 20_000, "nested too deeply", name="s.json"),
    _schedule("JSON with a number of 6,000 digits", '{"depth": ' + "9" * 6_000 + "}", "4,300 digits", name="s.json"),
    _schedule("a folder", empty_folder, "s.yaml is a folder"),
    _schedule("a pipe", pipe, "s.yaml is a pipe"),
    _schedule("a device", device, "s.yaml is a device"),
    _schedule("a link to itself", loop),
    _schedule("nothing at all", nothing, "no such file"),
    _schedule("a name of 5,000 characters", nothing, name="a" * 5_000),
    _schedule("a good one, whose name is a date", GOOD.replace("two", "2024-01-01"), success=True),
)

CASES = (*SCHEDULES, *PLANS)
