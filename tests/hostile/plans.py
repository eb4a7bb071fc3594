"""Bad plans and growth schedules: texts that need too much memory, and malicious YAML."""

from pathlib import Path

from hostile.case import Case, Says, words
from hostile.material import Content, empty_folder, loop, nothing, put, texts

NINES = "9" * 5_000
PLANS: dict[Says, tuple[str, ...]] = {
    "digits": ("0*" + NINES, NINES, "9" * 19),
    "10000": ("0-1000000000000",),
    "10,000": ("[[[[[[0*99]*99]*99]*99]*99]*99]*99", "(" + "|".join(["0"] * 50_000) + ")", "0 " * 60_000),
    "at most 50 deep": ("(" * 10_000 + "0" + ")" * 10_000, "[" * 10_000 + "0" + "]" * 10_000, "(" * 10_000),
    "１": ("１",),
    r"'\u200b' has no meaning": ("0\u200b1",),
    r"'\u202e' has no meaning": ("0 \u202e1",),
    r"'\x1b' has no meaning": ("0\n\x1b[31m1",),
    r"'\udcff' has no meaning": ("0 \udcff",),
    r"'\x00' has no meaning": ("0\x001",),
}

GROW = ("train", "growth", "--text", "texts", "--dry-run", "--max-length", "32", "--schedules")
GOOD = """\
name: two
depth: 12
phases:
- {name: top, share: 0.25, trains: 8-11}
- {name: rest, share: 0.75, trains: all}
"""
MANY_SLICES = "merge_method: passthrough\nslices:\n" + "- sources: [{model: a/b, layer_range: [0, 9999]}]\n" * 2_000


def _laughs(path: Path) -> bytes:
    """Write the billion laughs attack: 10^9 words in 424 bytes."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 9)]
    return "\n".join(lines).encode()


def _large_map(path: Path) -> bytes:
    return ("{" + ", ".join(f"k{number}: 0" for number in range(400_000)) + "}").encode()


def _good(old: str, *new: str) -> list[Content]:
    return [GOOD.replace(old, each) for each in new]


SCHEDULES: dict[Says, list[Content]] = {
    "a mapping of keys to values": ["", "[1, 2]"],
    "not UTF-8 text": [bytes(range(256))],
    "YAML": ["name: a\0b", "{name: [", "phases:\n\t- name: a", "---\na: 1\n---\nb: 2"],
    "alias": [_laughs, "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: [*b, *b]}", "a: &a [*a]"],
    "nested more than 50 levels deep": [
        "[" * 10_000 + "]" * 10_000,
        "{a: " * 10_000 + "}" * 10_000,
        "".join(" " * depth + "a:\n" for depth in range(600)),
    ],
    ("depth", "2024-13-45"): _good("12", "2024-13-45"),
    ("share", "99:99"): _good("0.25", "2024-01-01 99:99:99"),
    "4,300 digits": [
        f"depth: {digits}" for digits in ("9" * 6_000, "1:" * 6_000 + "1", "9_" * 6_000 + "9", "0x" + "f" * 6_000)
    ],
    "python/object/apply": ["!!python/object/apply:os.system ['touch it-was-run']"],
    "!secret": ["name: !secret abc"],
    "binary": ["name: !!binary '===='"],
    "s.yaml": ["phases: !!set {a, b}", "? [a, b]\n: 1", "? {a: 1}\n: 1", loop],
    "twice": ["name: a\nname: b"],
    "MB": [_large_map, lambda path: b"name: " + b"a" * 10_000_000, lambda path: b"#\n" * 5_000_000],
    "phases": ["name: a\ndepth: 12\nphases: []"],
    "phase 1": ["name: a\ndepth: 12\nphases: [1, 2]"],
    "depth": _good("12", "1000000000", "twelve", "true"),
    "share": [*_good("0.25", "some", ".inf", ".nan", "-1"), *_good("0.75", "0.9")],
    "name": [*_good("two", "7", "../../up"), *_good("top", "../../up")],
    "trains": _good("8-11", "{a: 1}", "2024-01-01", "0-1000000000000", f"'{NINES}'", "-3"),
    "12": _good("8-11", "8-99"),
    "color": [GOOD + "color: red\n"],
    "7": [GOOD + "7: red\n"],
    "None": [GOOD + "? \n: red\n"],
    "scale": _good("8-11", "8-11, scale: {3: large}", f"8-11, scale: {{3: 1{'0' * 400}}}"),
    "s.yaml is a folder": [empty_folder],
    "does not exist": [nothing],
    None: _good("two", "2024-01-01"),
}


def _schedule(content: Content, says: Says, name: str = "s.yaml") -> Case:
    def make(folder: Path) -> None:
        texts(folder)
        put(folder / name, content)

    return Case(
        (*GROW, name), None if says is None else (name[:40], *words(says)), make, f"a schedule: {content!r:.60}"
    )


CASES = (
    Case(
        ("plan", "--from", "merge.yaml"),
        ("19,998,000", "10,000"),
        lambda folder: put(folder / "merge.yaml", MANY_SLICES),
    ),
    *(Case(("plan", "--depth", "12", "--", text), says) for says, group in PLANS.items() for text in group),
    *(_schedule(content, says) for says, contents in SCHEDULES.items() for content in contents),
    _schedule(lambda path: b'{"a":' * 20_000, "nested more than", "s.json"),
    _schedule('{"depth": ' + "9" * 6_000 + "}", "4,300 digits", "s.json"),
    _schedule(nothing, (), "a" * 5_000),
)
