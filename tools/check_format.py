"""Checks, or with --fix makes, the format of every C++ and CUDA source.

usage: check_format.py ROOT [--fix]

Only clang-format 14 will do: versions disagree about the same configuration.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import tree

SUFFIXES = (".h", ".cpp", ".cu", ".cuh")


def find_clang_format():
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path and " version 14." in subprocess.check_output([path, "--version"], text=True):
            return path
    sys.exit("clang-format 14 is not installed; scripts/setup.sh installs it")


def main(root, fix):
    sources = [str(root / path) for path in tree.files(root) if path.suffix in SUFFIXES]
    mode = ["-i"] if fix else ["--dry-run", "-Werror", "--ferror-limit=1"]
    # In one process: starting one a file costs more than the formatting.
    result = subprocess.run([find_clang_format(), *mode, *sources], check=False)
    if result.returncode:
        sys.exit("some files are not formatted; run scripts/lint.sh --fix-format")
    print(f"{len(sources)} sources are formatted")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--fix" in sys.argv[2:])
