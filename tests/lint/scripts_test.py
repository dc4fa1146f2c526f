"""Tests of scripts/: what they do on machines that this one is not, with stand-ins for the
programs that they call (apt-get, pip, cmake, ninja...), in a checkout path with spaces."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# Each notes its call in $CALLS; what it does is the least that the scripts rely on.
STAND_INS = {
    "dpkg-query": 'shift 2; for p; do [ "$p" = "$MISSING_PACKAGE" ] || echo "installed $p"; done',
    "id": "echo ${FAKE_UID:-0}",
    "sudo": '[ "$1" != -n ] && exec "$@"; exit 1',
    "apt-get": 'echo "apt-get $*" >>"$CALLS"; case "$*" in *download*) touch prometheus_1.deb;; esac; exit ${APT_STATUS:-0}',
    "dpkg": 'mkdir -p "$3/usr/bin"; touch "$3/usr/bin/promtool"; chmod +x "$3/usr/bin/promtool"',
    "df": 'echo header; echo "/dev/x 1 1 ${FREE_KB:-99000000} 1% /"',
    "cmake": 'echo "cmake $*" >>"$CALLS"; [ -z "$CMAKE_FAILS" ] || exit 1; '
    'mkdir -p build; touch build/build.ninja; exit 0',
    "ninja": 'case "$*" in *" -n "*) [ -e "$BUILT" ] && echo "ninja: no work to do."; exit 0;; esac; '
    'echo "ninja $*" >>"$CALLS"; touch "$BUILT"',
    "nproc": "echo 2",
    # `python3 -m venv DIR` leaves a Python whose pip fills its --target, or fails.
    # `python3 -m pip download` leaves a package without GPT-2's vocabulary in it.
    "python3": 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$PIP" "$3/bin/python"; fi; '
    'if [ "$3" = download ]; then echo "pip download" >>"$CALLS"; while [ "$1" != --dest ]; do shift; done; '
    'mkdir -p "$2/w/whisper/assets"; echo changed >"$2/w/whisper/assets/gpt2.tiktoken"; '
    'tar -czf "$2/w.tar.gz" -C "$2" w; fi',
}
PIP = """#!/bin/sh
[ "$1" = -c ] && exit 0
echo "pip $*" >>"$CALLS"
[ -z "$PIP_FAILS" ] || exit 1
while [ $# -gt 0 ]; do [ "$1" = --target ] && mkdir -p "$2/torch"; shift; done
exit 0
"""


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.root = self.home / "a checkout"
        shutil.copytree(SOURCE / "scripts", self.root / "scripts")
        programs = self.home / "bin"
        programs.mkdir()
        for name, text in STAND_INS.items():
            script(programs / name, f"#!/bin/sh\n{text}\n")
        script(self.home / "pip", PIP)
        self.cache = self.home / "cache" / "lockstep"
        (self.cache / "gpt2").mkdir(parents=True)
        (self.cache / "gpt2" / "gpt2.tiktoken").touch()
        self.environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "CALLS": str(self.home / "calls"),
            "BUILT": str(self.home / "built"),
            "PIP": str(self.home / "pip"),
        }

    def setup_sh(self, *arguments, **environment):
        return subprocess.run(
            [str(self.root / "scripts" / "setup.sh"), *arguments],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self):
        path = self.home / "calls"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text

    def assert_fails(self, result, status, *sayings):
        self.assertEqual(result.returncode, status, result.stderr)
        for saying in sayings:
            self.assertIn(saying, result.stderr)


class Setup(ScriptTest):
    def test_does_everything_once_and_then_nothing(self):
        first = self.setup_sh()
        self.assertEqual(first.returncode, 0, first.stderr)
        calls = self.calls()
        for call in ("pip ", "cmake --preset release", "ninja "):
            self.assertIn(call, calls)
        second = self.setup_sh()
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual(self.calls(), "")
        self.assertEqual(second.stderr.splitlines(), ["setup: nothing to do, everything is in place"])

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a GPU")
    def test_fetches_only_what_the_cpu_needs(self):
        self.setup_sh()
        calls = [line for line in self.calls().splitlines() if line.startswith("pip")]
        self.assertEqual(len(calls), 2)
        for call, package in zip(calls, ("torch==2.11.0", "pyarrow==")):
            self.assertIn(package, call)
            self.assertIn("--no-deps", call)
            self.assertNotIn("cudnn", call)

    def test_without_arrow_none_is_fetched(self):
        self.setup_sh(LOCKSTEP_ARROW="off")
        calls = self.calls()
        self.assertNotIn("pyarrow", calls)
        self.assertIn("-DLOCKSTEP_ARROW=off", calls)

    def test_a_failed_download_of_arrow_says_how_to_do_without(self):
        folder = self.home / "my torch"
        folder.mkdir()
        result = self.setup_sh(LOCKSTEP_LIBTORCH=str(folder), PIP_FAILS="1")
        self.assert_fails(result, 3, "Apache Arrow", "LOCKSTEP_ARROW=off leaves it out")

    def test_an_unknown_option_is_a_wrong_call(self):
        self.assert_fails(self.setup_sh("--gpu"), 2, "unknown option '--gpu'")
        self.assertEqual(self.calls(), "")

    def test_without_root_and_sudo_it_prints_the_command_for_an_administrator(self):
        result = self.setup_sh(FAKE_UID="1000", MISSING_PACKAGE="libyaml-cpp-dev")
        self.assert_fails(result, 3, "ask an administrator", "apt-get install", "libyaml-cpp-dev")
        self.assertNotIn("zlib1g-dev", result.stderr)
        self.assertEqual(self.calls(), "")

    def test_installs_only_what_is_missing(self):
        self.setup_sh("--no-build", MISSING_PACKAGE="ninja-build")
        installs = [line for line in self.calls().splitlines() if line.startswith("apt-get") and " install " in line]
        self.assertEqual(len(installs), 1)
        self.assertTrue(installs[0].endswith("--no-install-recommends ninja-build"), installs)

    def test_a_failed_install_is_said(self):
        result = self.setup_sh(MISSING_PACKAGE="ninja-build", APT_STATUS="100")
        self.assert_fails(result, 3, "apt-get could not install ninja-build")

    def test_a_failed_download_leaves_nothing_behind(self):
        self.assert_fails(self.setup_sh(PIP_FAILS="1"), 3, "fetching LibTorch 2.11.0", "failed")
        self.assertEqual(sorted(path.name for path in self.cache.iterdir()), ["gpt2", "lock"])
        self.assertEqual(self.setup_sh().returncode, 0)

    def test_a_killed_download_does_not_count(self):
        (self.cache / ".fetch.abc123" / "wheels").mkdir(parents=True)
        (self.cache / "libtorch-2.11.0" / "torch").mkdir(parents=True)  # without its stamp
        self.assertEqual(self.setup_sh().returncode, 0)
        self.assertIn("pip ", self.calls())
        self.assertFalse((self.cache / ".fetch.abc123").exists())

    def test_too_little_space_is_said_before_the_download(self):
        self.assert_fails(self.setup_sh(FREE_KB="1000000"), 3, "needs", "which has 1 GB")
        self.assertNotIn("pip ", self.calls())

    def test_a_named_libtorch_is_used_and_none_is_fetched(self):
        folder = self.home / "my torch"
        folder.mkdir()
        self.setup_sh(LOCKSTEP_LIBTORCH=str(folder))
        calls = self.calls()
        self.assertIn(f"-DLOCKSTEP_LIBTORCH={folder}", calls)
        self.assertNotIn("torch==", calls)

    def test_a_libtorch_on_the_prefix_path_is_used(self):
        folder = self.home / "prefix"
        header = folder / "include/torch/csrc/api/include/torch/version.h"
        header.parent.mkdir(parents=True)
        header.touch()
        self.setup_sh(CMAKE_PREFIX_PATH=f"/nonexistent:{folder}")
        self.assertIn(f"-DLOCKSTEP_LIBTORCH={folder}", self.calls())

    def test_a_named_libtorch_that_is_not_there_is_refused(self):
        self.assert_fails(self.setup_sh(LOCKSTEP_LIBTORCH=str(self.home / "missing")), 3, "which is not a folder")

    def test_another_libtorch_is_configured_again(self):
        self.setup_sh()
        self.calls()
        folder = self.home / "other"
        folder.mkdir()
        self.setup_sh(LOCKSTEP_LIBTORCH=str(folder))
        self.assertIn("cmake ", self.calls())

    def test_a_failed_configure_is_not_remembered(self):
        self.assert_fails(self.setup_sh(CMAKE_FAILS="1"), 3, "configuring failed")
        self.assertEqual(self.setup_sh().returncode, 0)
        self.assertIn("cmake ", self.calls())

    def test_the_oracle_is_asked_for_and_can_be_left_out(self):
        off = self.setup_sh("--oracle", "--no-build", LOCKSTEP_ORACLE="off")
        self.assertIn("LOCKSTEP_ORACLE=off", off.stderr)
        self.assertNotIn("safetensors", self.calls())
        self.setup_sh("--oracle", "--no-build")
        calls = self.calls()
        self.assertIn("torch==2.11.0 numpy safetensors scikit-learn==1.7.2", calls)
        self.assertIn("apt-get -q download prometheus", calls)
        self.setup_sh("--oracle", "--no-build")
        self.assertEqual(self.calls(), "")

    def test_an_oracle_that_works_gets_only_what_it_lacks(self):
        self.setup_sh("--oracle", "--no-build")
        mark = self.cache / "oracle-2.11.0" / "kept"
        mark.touch()
        (self.cache / "oracle-2.11.0" / ".lockstep-complete").write_text("an older list")
        self.setup_sh("--oracle", "--no-build")
        self.assertTrue(mark.exists())

    def test_a_missing_promtool_is_fetched_again(self):
        self.setup_sh("--oracle", "--no-build")
        (self.cache / "oracle-2.11.0" / "bin" / "promtool").unlink()
        self.calls()
        self.setup_sh("--oracle", "--no-build")
        self.assertIn("download prometheus", self.calls())
        (self.cache / "oracle-2.11.0" / "bin" / "promtool").unlink()
        self.assert_fails(self.setup_sh("--oracle", "--no-build", APT_STATUS="100"), 3, "apt-get update")

    def test_the_oracle_comes_with_a_vocabulary_that_is_checked(self):
        (self.cache / "gpt2" / "gpt2.tiktoken").unlink()
        self.assert_fails(self.setup_sh("--oracle", "--no-build"), 3,
                          "the hash of whisper/assets/gpt2.tiktoken is not 306cd27f")
        self.assertIn("pip download", self.calls())
        self.assertEqual(list((self.cache / "gpt2").iterdir()), [])

    def test_an_interrupted_oracle_is_made_again(self):
        self.setup_sh("--oracle", "--no-build")
        self.calls()
        (self.cache / "oracle-2.11.0" / ".lockstep-complete").unlink()
        self.setup_sh("--oracle", "--no-build")
        self.assertIn("safetensors", self.calls())


class LibTorchChecks(unittest.TestCase):
    """cmake/LibTorch.cmake over folders that look like LibTorch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.project = Path(folder.name)
        self.torch = self.project / "a torch"
        self.write("include/torch/csrc/api/include/torch/version.h", "")
        self.version(2, 11, 0)
        self.write("lib/libtorch_cpu.so", "")
        self.write("lib/libc10.so", "_ZN3c105ErrorNSt7__cxx1112basic_stringE\n")
        (self.project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(check LANGUAGES NONE)\n"
            f'include("{SOURCE}/cmake/LibTorch.cmake")\n'
        )

    def write(self, name, text):
        path = self.torch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def version(self, *numbers):
        names = ("MAJOR", "MINOR", "PATCH")
        lines = (f"#define TORCH_VERSION_{name} {n}\n" for name, n in zip(names, numbers))
        self.write("include/torch/headeronly/version.h", "".join(lines))

    def says(self):
        command = ["cmake", "-G", "Ninja", "-S", self.project, "-B", self.project / "b", f"-DLOCKSTEP_LIBTORCH={self.torch}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertNotEqual(result.returncode, 0)
        return " ".join(result.stderr.split())

    def test_another_version(self):
        self.version(2, 10, 1)
        self.assertIn("is version '2.10.1'; Lockstep needs 2.11.0; unset LOCKSTEP_LIBTORCH", self.says())

    def test_the_old_abi(self):
        self.write("lib/libc10.so", "_ZN3c105ErrorESs\n")
        self.assertIn("built with the old C++ ABI", self.says())

    def test_no_distributed_headers(self):
        self.assertIn("has no c10d headers", self.says())

    def test_a_folder_of_something_else(self):
        shutil.rmtree(self.torch / "include")
        self.assertIn("is not a folder of LibTorch", self.says())


if __name__ == "__main__":
    sys.exit(unittest.main())
