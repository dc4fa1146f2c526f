"""Checks that every source is in a build: each .cpp and .cu is named in the CMakeLists.txt
of its folder, and a file with tests in it is called so.

usage: check_tree.py ROOT
"""

import re
import sys
from pathlib import Path

import tree

BUILT_FOLDERS = ("lockstep", "tests", "apps", "benchmarks", "examples")


def names_in(cmake_file):
    """The words of a CMakeLists.txt, without its comments."""
    if not cmake_file.exists():
        return set()
    text = re.sub(r"#[^\n]*", "", cmake_file.read_text())
    return set(re.split(r'[\s()";]+', text))


def check(root):
    for path in tree.files(root):
        if path.parts[0] not in BUILT_FOLDERS or path.suffix not in (".cpp", ".cu"):
            continue
        if path.name not in names_in(root / path.parent / "CMakeLists.txt"):
            yield f"{path}: not named in {path.parent}/CMakeLists.txt, so it is never compiled"
        if re.search(r"^TEST", (root / path).read_text(), re.MULTILINE):
            if not path.name.endswith("_test.cpp"):
                yield f"{path}: has tests, so its name must end in _test.cpp"


if __name__ == "__main__":
    tree.report(list(check(Path(sys.argv[1]))), "every source is in a build")
