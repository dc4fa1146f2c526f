"""Tests of apps/lockstep_worker.cpp: whatever is wrong with LibTorch, the user sees one
line and exit status 3. LibTorch and the worker library are stand-ins of a few lines, and
LOADER is that source built with a LibTorch folder that does not exist.

usage: loader_test.py COMPILER LOADER
"""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FETCH_REMEDY = (
    "; run scripts/get_libtorch.sh, which fetches it, or set LOCKSTEP_LIBTORCH to the folder of "
    "LibTorch 2.11.0 (it has lib/ and include/)"
)
REMEDY = "; set LOCKSTEP_LIBTORCH to the folder of LibTorch 2.11.0 (it has lib/ and include/)"
WORKER = r"""
#include <cstdio>
extern int torch_answer();
extern "C" int lockstep_worker_main(int argc, char** argv) {
  std::printf("%s %d\n", argv[argc - 1], torch_answer());
  return 42;
}
"""
# 100 kB of data, so that half of the file is not all of its segments.
TORCH = "char ballast[100000] = {1}; int torch_answer() { return ballast[0]; }"


class LoaderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.built = Path(cls.folder.name)
        shutil.copy(LOADER, cls.built / "loader")
        cls.library("libc10.so", "int c10_answer() { return 1; }")
        cls.library("libtorch_cpu.so", TORCH)
        cls.library("liblockstep_worker.so", WORKER)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def library(cls, name, text):
        source = cls.built / f"{name}.cpp"
        source.write_text(text)
        command = [COMPILER, "-shared", "-fPIC", source, "-o", cls.built / name]
        subprocess.run(command, check=True)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name) / "a place"
        self.copy("loader", "bin/lockstep_worker")
        self.copy("liblockstep_worker.so", "bin/liblockstep_worker.so")

    def copy(self, name, target, size=None):
        path = self.home / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((self.built / name).read_bytes()[:size])
        path.chmod(0o755)

    def make_torch(self, folder, version="2.11.0+cu130"):
        self.copy("libc10.so", f"{folder}/lib/libc10.so")
        self.copy("libtorch_cpu.so", f"{folder}/lib/libtorch_cpu.so")
        if version:
            (self.home / folder / "version.py").write_text(f"__version__ = '{version}'\ncuda = '13.0'\n")
        return str(self.home / folder)

    def run_loader(self, **environment):
        command = [self.home / "bin" / "lockstep_worker", "argument"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def runs(self, **environment):
        result = self.run_loader(**environment)
        self.assertEqual((result.returncode, result.stdout), (42, "argument 1\n"), result.stderr)

    def fails(self, *sayings, remedy=REMEDY, **environment):
        result = self.run_loader(**environment)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("lockstep_worker: error: "), result.stderr)
        self.assertTrue(result.stderr.endswith(remedy + "\n"), result.stderr)
        for saying in sayings:
            self.assertIn(saying, result.stderr)

    def test_runs_with_the_named_folder(self):
        self.runs(LOCKSTEP_LIBTORCH=self.make_torch("torch"))

    def test_runs_with_the_named_library_folder(self):
        self.runs(LOCKSTEP_LIBTORCH=self.make_torch("torch") + "/lib")

    def test_runs_with_what_the_system_finds(self):
        self.runs(LD_LIBRARY_PATH=self.make_torch("torch") + "/lib")

    def test_runs_when_the_version_can_not_be_known(self):
        self.runs(LOCKSTEP_LIBTORCH=self.make_torch("torch", version=None))

    def test_no_libtorch(self):
        self.fails("was not found", "LOCKSTEP_LIBTORCH is not set", remedy=FETCH_REMEDY)

    def test_runs_with_that_of_its_bundle(self):
        self.make_torch("libtorch")  # beside bin/
        self.runs()

    def test_runs_with_that_of_the_cache(self):
        self.make_torch("cache/lockstep/libtorch-2.11.0/torch")
        self.runs(XDG_CACHE_HOME=str(self.home / "cache"))

    def test_one_for_gpus_in_the_cache_of_a_home_is_taken_first(self):
        self.make_torch("me/.cache/lockstep/libtorch-2.11.0/torch", version="1.0.0")
        self.make_torch("me/.cache/lockstep/libtorch-2.11.0-gpu/torch")
        self.runs(HOME=str(self.home / "me"))

    def test_a_named_folder_without_libtorch_is_not_passed_over(self):
        good = self.make_torch("torch") + "/lib"
        self.fails("LOCKSTEP_LIBTORCH=/nonexistent", LOCKSTEP_LIBTORCH="/nonexistent", LD_LIBRARY_PATH=good)

    def test_another_version(self):
        torch = self.make_torch("torch", version="2.10.0+cpu")
        self.fails("is version 2.10.0+cpu", LOCKSTEP_LIBTORCH=torch)

    def test_another_version_of_an_archive(self):
        torch = self.make_torch("torch", version=None)
        (self.home / "torch" / "build-version").write_text("2.9.1\n")
        self.fails("is version 2.9.1", LOCKSTEP_LIBTORCH=torch)

    def test_truncated_libraries(self):
        torch = self.make_torch("torch")
        for size in (0, 40, 200, 5000, 60000):
            self.copy("libtorch_cpu.so", "torch/lib/libtorch_cpu.so", size)
            self.fails("libtorch_cpu.so", LOCKSTEP_LIBTORCH=torch)

    def test_a_file_that_is_no_library(self):
        torch = self.make_torch("torch")
        (self.home / "torch/lib/libc10.so").write_text("a text" * 100)
        self.fails("libc10.so is not a shared library", LOCKSTEP_LIBTORCH=torch)

    def test_a_libtorch_without_what_the_worker_needs(self):
        torch = self.make_torch("torch")
        self.copy("libc10.so", "torch/lib/libtorch_cpu.so")
        self.fails("undefined symbol", LOCKSTEP_LIBTORCH=torch)

    def test_no_worker_library(self):
        (self.home / "bin/liblockstep_worker.so").unlink()
        torch = self.make_torch("torch")
        self.fails("is missing", remedy="; keep it beside lockstep_worker", LOCKSTEP_LIBTORCH=torch)

    def test_a_worker_library_of_something_else(self):
        self.copy("libc10.so", "bin/liblockstep_worker.so")
        self.fails("lockstep_worker_main", LOCKSTEP_LIBTORCH=self.make_torch("torch"))


if __name__ == "__main__":
    COMPILER, LOADER = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main()
