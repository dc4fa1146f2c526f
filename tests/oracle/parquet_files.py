"""Writes Parquet files with pyarrow, for the data set that reads them.

usage: parquet_files.py FOLDER

FOLDER/types/<name>/train.parquet  the column `x` of that type: 0, 1, 0, 1; target 0 ... 3
FOLDER/many/                       train/part-{0,1}.parquet with row groups of 3 rows, test/part-0.parquet
FOLDER/late/train-{0,1}.parquet    lists of numbers, and a first file without rows, as Spark writes it
FOLDER/lists/train.parquet         `fixed` and `free`, lists of 3 and 2 numbers, labels with nulls
FOLDER/bad/<name>/train.parquet    what is refused
FOLDER/table/{csv,parquet}/        one table in both formats, to train on
"""

import csv
import datetime
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
           "float32", "float64"]


def write(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)


def write_types(folder):
    arrays = {name: pa.array([0, 1, 0, 1]).cast(name) for name in NUMBERS}
    arrays["bool"] = pa.array([False, True, False, True])
    arrays["decimal"] = pa.array([Decimal("0.00"), Decimal("1.00")] * 2)
    arrays["dictionary"] = pa.array([0, 1, 0, 1]).dictionary_encode()
    for name, array in arrays.items():
        write(folder / name / "train.parquet", {"x": array, "target": [0, 1, 2, 3]})


def write_many(folder):
    def rows(first, last):
        index = range(first, last)
        return {"x": [i / 8 for i in index],
                "word": pa.array([["low", "high"][i % 2] for i in index]).dictionary_encode(),
                "unused": [[str(i)] for i in index],
                "target": [["no", "yes"][i // 2 % 2] for i in index]}
    for part, (first, last) in enumerate(((0, 10), (10, 17))):
        write(folder / f"train/part-{part}.parquet", rows(first, last), row_group_size=3,
              compression=["zstd", "snappy"][part])
    write(folder / "test/part-0.parquet", rows(20, 24))


def write_lists(folder):
    fixed = pa.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], pa.list_(pa.float32(), 3))
    write(folder / "train.parquet",
          {"fixed": fixed, "free": [[0.5, 1], [1.5, 2], [2.5, 3]],
           "labels": [[1, None], [0, 1], [None, None]], "weight": [1.0, 2.0, 0.5],
           "id": [2**53, 2**53 + 1, 2**53]})


def write_late(folder):
    for part, rows in enumerate(([], [[1.0, 2.0], [3.0, 4.0]])):
        write(folder / f"train-{part}.parquet", {"x": pa.array(rows, pa.list_(pa.float32())),
                                                 "target": pa.array(range(len(rows)), pa.int64())})


def write_bad(folder):
    target = [0, 1, 0]
    bad = {
        "time": {"x": [datetime.datetime(2026, 11, day) for day in (1, 2, 3)]},
        "null": {"x": [1.0, None, 2.0]},
        "nan": {"x": [1.0] * 5000 + [float("nan")]},  # behind the first batch
        "infinite": {"x": [1.0, 2.0, float("inf")]},
        "huge": {"x": pa.array([0, 1, 2**64 - 1], pa.uint64())},
        "uneven": {"x": [[1.0, 2.0]] * 5000 + [[1.0]]},
        "empty": {"x": pa.array([[], [], []], pa.list_(pa.float32()))},
        "nothing": {"x": pa.array([None, None, None], pa.list_(pa.float64()))},
        "words": {"x": [["a"], ["b"], ["c"]]},
        "bytes": {"x": [b"a", b"b", b"c"]},
    }
    for name, columns in bad.items():
        rows = len(columns["x"])
        write(folder / name / "train.parquet", {**columns, "target": (target * rows)[:rows]})
    write(folder / "no_rows/train.parquet", {"x": pa.array([], pa.int64()), "target": pa.array([], pa.int64())})
    first = {"x": [1.0, 2.0], "target": [0, 1]}
    for name, second in (("columns", {"y": [1.0]}), ("mixed", {"x": ["1.0"]})):
        write(folder / name / "train-0.parquet", first)
        write(folder / name / "train-1.parquet", {**second, "target": [0]})


def write_table(folder):
    """A fruit has a length and a width by its kind, and a color that says nothing."""
    kinds = ["apple", "banana", "cherry"]
    for part, rows in (("train", 240), ("val", 60)):
        table = []
        for i in range(rows):
            kind, wobble = i % 3, (i * 37 % 11) / 7
            length = (18 if kind == 1 else 6 - 2 * kind) + wobble
            table.append([length, 7 - wobble if kind == 0 else 3 - wobble,
                          ["red", "yellow"][i % 2], i % 4, kinds[kind]])
        names = ["length", "width", "color", "count", "label"]
        (folder / "csv").mkdir(parents=True, exist_ok=True)
        with open(folder / f"csv/{part}.csv", "w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows([names, *table])
        columns = {name: [row[at] for row in table] for at, name in enumerate(names)}
        write(folder / f"parquet/{part}.parquet", columns, row_group_size=50)


def main():
    folder = Path(sys.argv[1])
    write_types(folder / "types")
    write_many(folder / "many")
    write_lists(folder / "lists")
    write_late(folder / "late")
    write_bad(folder / "bad")
    write_table(folder / "table")


main()
