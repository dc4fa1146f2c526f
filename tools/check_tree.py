"""Checks that every source is in a build: each .cpp, .cu and _test.py is named in the
CMakeLists.txt of its folder, each folder that has one in that of the folder above, and a
file with tests in it is called so. No source of ours is too long to be read at once. A
test that is skipped without a GPU says so in its name, by which scripts/test_gpu.sh finds it.

usage: check_tree.py ROOT
"""

import re
import sys
from pathlib import Path

import tree

BUILT_FOLDERS = ("lockstep", "tests", "apps", "benchmarks", "examples")
MEASURED_FOLDERS = ("lockstep", "apps")
MOST_LINES = 400
FOLDERS_OF_FOLDERS = ("lockstep", "tests")


def names_in(cmake_file):
    """The words of a CMakeLists.txt, without its comments."""
    if not cmake_file.exists():
        return set()
    text = re.sub(r"#[^\n]*", "", cmake_file.read_text())
    return set(re.split(r'[\s()";]+', text))


def check_length(root, path):
    lines = (root / path).read_text().count("\n")
    if path.parts[0] in MEASURED_FOLDERS and lines > MOST_LINES:
        yield f"{path}: has {lines} lines, more than {MOST_LINES}: what is its second subject?"


def check_source(root, path):
    if path.name not in names_in(root / path.parent / "CMakeLists.txt"):
        yield f"{path}: not named in {path.parent}/CMakeLists.txt, so it is never compiled"
    if re.search(r"^TEST", (root / path).read_text(), re.MULTILINE):
        if not path.name.endswith("_test.cpp"):
            yield f"{path}: has tests, so its name must end in _test.cpp"
    yield from check_gpu_tests(path, (root / path).read_text())


def check_gpu_tests(path, text):
    for name, body in re.findall(r"^(TEST\w*\([^)]*\)) \{\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL):
        needs_gpu = re.search(r'GTEST_SKIP\(\)\s*<< "no GPU', body)
        if needs_gpu and not re.search("Gpu|Nccl|cuda_", name):
            yield f"{path}: {name} needs a GPU, so Gpu must be in its name"


def check_python_test(root, path):
    # There it has a folder before it: ${CMAKE_CURRENT_SOURCE_DIR}/x_test.py.
    words = names_in(root / path.parent / "CMakeLists.txt")
    if path.name not in {word.rpartition("/")[2] for word in words}:
        yield f"{path}: not named in {path.parent}/CMakeLists.txt, so it is never run"


def check_folder(root, folder):
    if folder.name not in names_in(root / folder.parent / "CMakeLists.txt"):
        yield f"{folder}: not named in {folder.parent}/CMakeLists.txt, so it is never built"


def check(root):
    for path in tree.files(root):
        if path.parts[0] not in BUILT_FOLDERS:
            continue
        if path.suffix in (".cpp", ".cu"):
            yield from check_source(root, path)
            yield from check_length(root, path)
        elif path.name.endswith("_test.py"):
            yield from check_python_test(root, path)
        elif path.name == "CMakeLists.txt" and path.parts[0] in FOLDERS_OF_FOLDERS:
            if len(path.parts) > 2:
                yield from check_folder(root, path.parent)


if __name__ == "__main__":
    tree.report(list(check(Path(sys.argv[1]))), "every source is in a build")
