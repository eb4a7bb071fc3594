"""Minimal pairs and tables are read completely, and invalid files are rejected."""

import base64
import gzip
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from layerwise.data.records import FileRecord, read_records, walk_files
from layerwise.data.suites.minimal_pairs import (
    PAIRS,
    PARADIGMS,
    SUPPLEMENT,
    MinimalPair,
    PairSet,
    find_pairs,
    read_pairs,
)
from layerwise.errors import DataError


def row(uid: str = "adjunct_island", good: str = "He sees her.", bad: str = "He see her.") -> dict[str, str]:
    return {"sentence_good": good, "sentence_bad": bad, "field": "syntax", "linguistics_term": "islands", "UID": uid}


def lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


def written(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines(rows))
    return path


WORLD = {"Context1": "It fell.", "Context2": "It rose.", "Target1": "It is low.", "Target2": "It is high."}


@pytest.mark.slow
def test_only_blimp_paradigms_are_named_blimp(tmp_path: Path) -> None:
    whole = [row(uid, good=f"{n} good") for uid in sorted(PARADIGMS) for n in range(PAIRS)]
    found = read_pairs([written(tmp_path / "all.jsonl", whole)])
    assert (found.suite, found.origin, len(found.pairs)) == ("blimp", "BLiMP", 67_000)
    part = read_pairs([written(tmp_path / "part.jsonl", whole[:1500])])
    assert (part.suite, part.origin) == ("blimp", "a part of BLiMP: 2 of 67 paradigms, 1,500 of 67,000 pairs")
    foreign = read_pairs([written(tmp_path / "blimp.jsonl", [*whole[:3], row("my_own")])])
    assert foreign.suite == "pairs blimp.jsonl"
    bare = [{"sentence_good": "a b", "sentence_bad": "b a"}]
    assert read_pairs([written(tmp_path / "mine.jsonl", bare)]).suite == "pairs mine.jsonl"


def test_pairs_keep_the_tested_difference(tmp_path: Path) -> None:
    pair = read_pairs([written(tmp_path / "x.jsonl", [row()])]).pairs[0]
    assert pair == MinimalPair("He sees her.", "He see her.", "adjunct_island", "islands", "syntax")
    assert pair.phenomenon == "islands"
    assert MinimalPair("a", "b", "own").phenomenon == "own"


def test_a_csv_needs_only_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('sentence_good,sentence_bad\n"One, two.","Two, one."\n')
    found = read_pairs([path])
    assert found.pairs == (MinimalPair("One, two.", "Two, one.", "mine"),)
    path.write_text("sentence_good,bad\nx,y\n")
    with pytest.raises(DataError, match=r"mine.csv, line 2: unknown column 'sentence_bad'"):
        read_pairs([path])


def test_the_supplement_is_named_by_its_files(tmp_path: Path) -> None:
    for name in SUPPLEMENT:
        written(tmp_path / "deep" / "supplement" / f"{name}.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}])
    found = find_pairs("supplement", tmp_path)
    assert (found.suite, found.origin) == ("supplement", "the supplement to BLiMP")
    assert set(found.paradigms()) == SUPPLEMENT
    (tmp_path / "deep" / "supplement" / "hypernym.jsonl").unlink()
    assert "4 of 5 files" in find_pairs("supplement", tmp_path).origin


def test_ewok_compares_contexts_for_one_target(tmp_path: Path) -> None:
    path = tmp_path / "ewok.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ewok/spatial.jsonl", lines([{**WORLD, "Domain": "spatial"}]))
    found = find_pairs("ewok", tmp_path)
    assert found.suite == "ewok"
    first, second = found.pairs
    assert (first.good, first.bad) == ("It fell. It is low.", "It rose. It is low.")
    assert (second.good, second.bad) == ("It rose. It is high.", "It fell. It is high.")
    assert first.good[first.good_start :] == first.bad[first.bad_start :] == "It is low."
    assert first.phenomenon == "spatial"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ewok.zip"], "nothing is unpacked"


LOCKED = base64.b64decode(
    "UEsDBBQAAQAAAEkSfV1m7QoKhQAAAHkAAAASAAAAZXdvay9zcGF0aWFsLmpzb25syInJW7TerA5anX5r7ymQSbKkaJ+Ut01gDZlfyMz/PunqbNXLNXvJ3IYx0Gw58AuZy+9SHDoOfuz2UdsfZMdUKKW5R9/LiAj8kTPBpAEqv5S2IHVlLa1ynHwVgVrU2HROqT9Dzrzk7Z+ZAOYEPRoRWGu7iVbyciTVBBVCg2y5jPb1DgEz+lBLAQIUAxQAAQAAAEkSfV1m7QoKhQAAAHkAAAASAAAAAAAAAAAAAACAAQAAAABld29rL3NwYXRpYWwuanNvbmxQSwUGAAAAAAEAAQBAAAAAtQAAAAAA"
)
"""The world above in an archive whose word is `secret`."""


def test_an_encrypted_archive_needs_its_password(tmp_path: Path) -> None:
    path = tmp_path / "ewok_filtered.zip"
    path.write_bytes(LOCKED)
    assert len(find_pairs("ewok", tmp_path, password="secret").pairs) == 2
    with pytest.raises(DataError, match=r"is encrypted\. Set --password"):
        find_pairs("ewok", tmp_path)
    with pytest.raises(DataError, match=r"cannot be decrypted with this --password|cannot be read"):
        find_pairs("ewok", tmp_path, password="wrong")


def test_blimp_can_be_one_file_or_many(tmp_path: Path) -> None:
    written(tmp_path / "a" / "wh_island.jsonl", [row("wh_island")])
    written(tmp_path / "a" / "causative.jsonl", [row("causative")])
    written(tmp_path / "a" / "other.jsonl", [{"x": 1}])
    assert set(find_pairs("blimp", tmp_path).paradigms()) == {"wh_island", "causative"}
    written(tmp_path / "b" / "blimp.jsonl", [row("passive_1")])
    assert set(find_pairs("blimp", tmp_path).paradigms()) == {"passive_1"}


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no blimp: expected blimp.jsonl"):
        find_pairs("blimp", tmp_path)
    with pytest.raises(DataError, match=r"expected hypernym.jsonl, qa"):
        find_pairs("supplement", tmp_path)
    with pytest.raises(DataError, match=r"expected ewok.zip"):
        find_pairs("ewok", tmp_path)
    with pytest.raises(DataError, match="did you mean blimp"):
        find_pairs("blmp", tmp_path)
    with pytest.raises(DataError, match="is not a directory"):
        find_pairs("blimp", tmp_path / "none")
    written(tmp_path / "blimp.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}])
    with pytest.raises(DataError, match="named like blimp, but"):
        find_pairs("blimp", tmp_path)


def test_pair_sets_are_limited_hashed_and_counted() -> None:
    pairs = tuple(MinimalPair(f"{n}", "no", uid) for uid in "ab" for n in range(3))
    short = PairSet("mine", "mine", pairs).first(2)
    assert [pair.good for pair in short.pairs] == ["0", "1", "0", "1"]
    assert short.origin == "mine, the first 2 pairs of each paradigm (4 of 6)"
    assert PairSet("mine", "mine", pairs).first(3).origin == "mine"

    base = MinimalPair("a", "b", "u", "t", "f", 0, 0)
    others = [MinimalPair("x", "b", "u", "t", "f"), MinimalPair("a", "b", "u", "t", "f", 1), MinimalPair("a", "b", "v")]
    digests = {PairSet("s", "o", (pair,)).digest for pair in (base, *others)}
    assert len(digests) == 4

    found = PairSet("s", "o", (MinimalPair("a", "a", "u"), MinimalPair("a", "b", "u")))
    assert found.equal == 1
    with pytest.raises(DataError, match="must have at least one pair"):
        PairSet("s", "nothing", ())


def packed(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_json_lines_keep_their_line_numbers(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / name, '{"a": "x"}\n\n{"a": "y"}\n')
    assert read_records(path) == (FileRecord({"a": "x"}, str(path), 1), FileRecord({"a": "y"}, str(path), 3))


@pytest.mark.parametrize(("name", "mark"), [("rows.csv", ","), ("rows.tsv", "\t"), ("rows.csv.gz", ",")])
def test_tables_have_a_header(tmp_path: Path, name: str, mark: str) -> None:
    path = packed(tmp_path / name, f'a{mark}b\n"x\ny"{mark}z\n1{mark}2\n')
    rows = read_records(path)
    assert [dict(row.columns) for row in rows] == [{"a": "x\ny", "b": "z"}, {"a": "1", "b": "2"}]
    assert [row.line for row in rows] == [3, 4]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.jsonl", "", "must have at least one row"),
        ("empty.csv", "a,b\n", "must have at least one row"),
        ("empty.tsv", "", "must have at least one row"),
        ("bad.jsonl", '{"a": 1}\n{"a": \n', "bad.jsonl, line 2: it is not JSON"),
        ("list.jsonl", "[1]\n", "line 1 must be a JSON object, got a list"),
        ("unequal.csv", "a,b\n1,2\n1,2,3\n", "line 3 must have 2 columns (a, b), got 3"),
        ("twice.csv", "a,a\n1,2\n", "column names must be unique, got 'a' twice"),
        ("quotes.csv", 'a,b\n"x" y,2\n', "line 2"),
        ("rows.parquet", "", "must be a table that ends in"),
    ],
)
def test_errors_name_their_location(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = packed(tmp_path / name, text)
    with pytest.raises(DataError) as refused:
        read_records(path)
    assert message in str(refused.value)


def test_links_are_followed_without_cycles(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "inside").mkdir(parents=True)
    (tmp_path / "elsewhere" / "inside" / "b.jsonl").touch()
    data = tmp_path / "data"
    (data / "z").mkdir(parents=True)
    (data / "z" / "a.jsonl").touch()
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "z" / "above").symlink_to(data)
    names = [path.relative_to(data).as_posix() for path in walk_files(data)]
    assert names == ["linked", "z", "linked/inside", "linked/inside/b.jsonl", "z/a.jsonl", "z/above"]
