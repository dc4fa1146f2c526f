#!/usr/bin/env python3
"""Writes a few small images of two classes, for docs/tutorial.md: a folder of images.

usage: tools/example_photos.py FOLDER
"""

import pathlib
import struct
import sys
import zlib

SIDE = 32


def chunk(kind, data):
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png(rows):
    """Returns the bytes of a PNG of these rows of RGB bytes."""
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) +
            chunk(b"IEND", b""))


def pattern(color, shift):
    """Returns diagonal bands whose width and color are those of a class."""
    for y in range(SIDE):
        yield bytes(c * (x + y + shift) % 256 for x in range(SIDE) for c in color)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for split, count in (("train", 24), ("val", 8)):
        for name, color in (("stripes", (7, 1, 2)), ("waves", (1, 6, 3))):
            folder = pathlib.Path(sys.argv[1], split, name)
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                (folder / f"{i}.png").write_bytes(png(pattern(color, i)))


main()
