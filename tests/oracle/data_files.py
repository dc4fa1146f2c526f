"""Writes what numpy, tarfile and csv write of samples, for the data sets that read them.

usage: data_files.py FOLDER

FOLDER/npz/data.npz          x_train (12, 2, 3) float64, y_train (12, 1) int32, x_test, y_test
FOLDER/packed/data.npz       the same, compressed
FOLDER/npy/<part>_<name>.npy the same
FOLDER/types/<dtype>.npy     0, 1, 0, 1 in every dtype that is read
FOLDER/gnu, FOLDER/pax       shards of tarfile in both formats, with long names
FOLDER/csv/train.csv         cells of all kinds, quoted by csv.writer
"""

import csv
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16",
          "float32", "float64"]
AWKWARD = ["plain", "a, b", 'said "no"', "two\nlines", " blanks ", "ümlaut"]


def arrays():
    x = np.arange(72, dtype=np.float64).reshape(12, 2, 3) / 8
    y = np.arange(12, dtype=np.int32).reshape(12, 1) % 5
    return {"x_train": x, "y_train": y, "x_test": x[:4] + 100, "y_test": y[:4]}


def write_arrays(folder):
    for name in ("npz", "packed", "npy", "types"):
        (folder / name).mkdir()
    np.savez(folder / "npz/data.npz", **arrays())
    np.savez_compressed(folder / "packed/data.npz", **arrays())
    for name, array in arrays().items():
        role, part = name.split("_")
        np.save(folder / "npy" / f"{part}_{role}.npy", array)
    for dtype in DTYPES:
        np.save(folder / "types" / f"{dtype}.npy", np.array([0, 1, 0, 1]).astype(dtype))


def png(index):
    pixels = np.full((4, 5, 3), index, dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="PNG")
    return out.getvalue()


def write_shards(folder, form):
    """Ten samples in two shards; 'folder/…' makes names longer than ustar has room for."""
    folder.mkdir()
    for shard in range(2):
        with tarfile.open(folder / f"train-{shard:03}.tar", "w", format=form) as tar:
            for index in range(5 * shard, 5 * shard + 5):
                key = f"{'folder/' * 20}{'n' * 120}{index}"
                about = {"kind": ["cat", "dog"][index % 2]}
                for ending, body in (("png", png(index)), ("cls", b"%d\n" % (index % 3)),
                                     ("json", json.dumps(about).encode()), ("txt", b"a text")):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(body)
                    tar.addfile(info, io.BytesIO(body))


def write_csv(folder):
    folder.mkdir()
    with open(folder / "train.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["number", "words", "target"])
        for index, words in enumerate(AWKWARD):
            writer.writerow([index / 3, words, index])


def main():
    folder = Path(sys.argv[1])
    write_arrays(folder)
    write_shards(folder / "gnu", tarfile.GNU_FORMAT)
    write_shards(folder / "pax", tarfile.PAX_FORMAT)
    write_csv(folder / "csv")


main()
