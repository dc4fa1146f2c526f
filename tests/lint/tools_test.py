"""Tests of tools/: each kind of mistake in a small tree is found, and a sound tree passes."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
LAYERS = "control base:\ncontrol config: base\ncontrol cli: base\ndata comm: base\ndata kernels: base\n"


class ToolTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "a tree"
        self.write("layers.txt", LAYERS)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self, name, *arguments):
        command = [sys.executable, str(TOOLS / name), str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def passes(self, name, *arguments):
        result = self.run_tool(name, *arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def fails(self, name, *arguments, saying):
        result = self.run_tool(name, *arguments)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(saying, result.stdout + result.stderr)


class Layers(ToolTest):
    def include(self, source, header):
        self.write(source, f"#include {header}\n")

    def check_fails(self, saying):
        self.fails("check_layers.py", str(self.root / "layers.txt"), saying=saying)

    def test_a_sound_tree_passes(self):
        self.include("lockstep/cli/main.cpp", '"lockstep/base/text.h"')
        self.include("lockstep/comm/gloo.cpp", "<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>")
        self.include("lockstep/comm/local.cpp", '"lockstep/comm/detail/queue.h"')
        self.include("tests/comm/local_test.cpp", '"lockstep/comm/detail/queue.h"')
        self.include("lockstep/kernels/add_cuda.cu", '"lockstep/kernels/cuda.h"')
        self.passes("check_layers.py", str(self.root / "layers.txt"))

    def test_an_arrow_that_is_not_declared(self):
        self.include("lockstep/comm/local.cpp", '"lockstep/cli/command.h"')
        self.check_fails("comm does not depend on cli")

    def test_torch_in_the_control_plane(self):
        for header in ("<torch/torch.h>", "<ATen/ATen.h>", "<c10/util/Exception.h>"):
            self.include("lockstep/base/text.cpp", header)
            self.check_fails("base is control plane")

    def test_torch_in_the_control_program(self):
        self.include("apps/lockstep.cpp", "<torch/torch.h>")
        self.check_fails("control plane")

    def test_torch_in_the_loader(self):
        self.include("apps/lockstep_worker.cpp", "<torch/torch.h>")
        self.check_fails("control plane")

    def test_too_much_in_the_loader(self):
        self.include("apps/lockstep_worker.cpp", '"lockstep/comm/gloo.h"')
        self.check_fails("does not depend on comm")

    def test_a_private_header_of_another_module(self):
        self.include("lockstep/cli/main.cpp", '"lockstep/base/detail/text.h"')
        self.check_fails("private to base")

    def test_a_private_header_in_a_test_of_another_module(self):
        self.include("tests/cli/main_test.cpp", '"lockstep/base/detail/text.h"')
        self.check_fails("private to base")

    def test_gloo_in_a_second_source(self):
        for header in ("<gloo/allreduce.h>", "<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>"):
            self.include("lockstep/comm/rendezvous.cpp", header)
            self.check_fails("gloo's headers")

    def test_cuda_outside_kernels(self):
        self.write("lockstep/comm/add.cu", "")
        self.check_fails("CUDA sources")

    def test_a_backend_that_is_known_by_its_name(self):
        for source, text in (
            ("lockstep/comm/local.h", 'bool is() { return name == "nccl"; }'),
            ("lockstep/cli/main.cpp", 'auto name = "nccl";'),
        ):
            self.write(source, text + "\n")
        self.passes("check_layers.py", str(self.root / "layers.txt"))
        for text in (
            'if (one.backend == "shm") {}',
            'if (data.backend() != other) {}',
            "if (wanted == config::CommBackend::gloo) {}",
        ):
            self.write("lockstep/cli/main.cpp", "\n" + text + "\n")
            self.check_fails("lockstep/cli/main.cpp:2: compares the name of a backend")

    def test_a_module_that_is_not_declared(self):
        self.write("lockstep/extra/extra.cpp", "")
        self.check_fails("'extra' is not declared")

    def test_a_control_only_build_leaves_the_data_plane_alone(self):
        self.write("layers.txt", "control base:\n")
        self.include("lockstep/comm/local.cpp", "<torch/torch.h>")
        self.passes("check_layers.py", str(self.root / "layers.txt"))


class Tree(ToolTest):
    def setUp(self):
        super().setUp()
        self.write("lockstep/CMakeLists.txt", "add_subdirectory(base)\n")
        self.write("tests/CMakeLists.txt", "foreach(module base lint)\nendforeach()\n")

    def test_a_sound_tree_passes(self):
        self.write("lockstep/base/CMakeLists.txt", "lockstep_module(base\n  SOURCES text.cpp)")
        self.write("lockstep/base/text.cpp", "")
        self.write("tests/lint/CMakeLists.txt", "add_test(COMMAND ${folder}/a_test.py)")
        self.write("tests/lint/a_test.py", "")
        self.write("tests/oracle/model.py", "")
        self.passes("check_tree.py")

    def test_a_folder_of_tests_that_is_never_added(self):
        self.write("tests/extra/CMakeLists.txt", "lockstep_tests(extra SOURCES a_test.cpp)")
        self.write("tests/extra/a_test.cpp", "")
        self.fails("check_tree.py", saying="tests/extra: not named in tests/CMakeLists.txt")

    def test_a_module_that_is_never_added(self):
        self.write("lockstep/CMakeLists.txt", "add_subdirectory(bas)\n# base\n")
        self.write("lockstep/base/CMakeLists.txt", "lockstep_module(base)")
        self.fails("check_tree.py", saying="lockstep/base: not named")

    def test_a_python_test_that_is_never_run(self):
        self.write("tests/lint/CMakeLists.txt", "add_test(COMMAND ${folder}/an_a_test.py)")
        self.write("tests/lint/a_test.py", "")
        self.fails("check_tree.py", saying="a_test.py: not named")

    def test_a_source_in_no_list(self):
        self.write("lockstep/base/CMakeLists.txt", "lockstep_module(base SOURCES a_text.cpp)")
        self.write("lockstep/base/text.cpp", "")
        self.fails("check_tree.py", saying="text.cpp: not named")

    def test_a_source_that_only_a_comment_names(self):
        self.write("tests/base/CMakeLists.txt", "lockstep_tests(base) # text_test.cpp")
        self.write("tests/base/text_test.cpp", "")
        self.fails("check_tree.py", saying="never compiled")

    def test_a_folder_without_a_list(self):
        self.write("lockstep/kernels/add_cuda.cu", "")
        self.fails("check_tree.py", saying="add_cuda.cu: not named")

    def test_a_source_that_is_too_long(self):
        self.write("lockstep/base/CMakeLists.txt", "lockstep_module(base SOURCES text.cpp)")
        self.write("lockstep/base/text.cpp", "\n" * 400)
        self.passes("check_tree.py")
        self.write("lockstep/base/text.cpp", "\n" * 401)
        self.fails("check_tree.py", saying="text.cpp: has 401 lines")

    def test_a_test_that_needs_a_gpu_and_does_not_say_so(self):
        body = '{\n  if (!has_gpu()) GTEST_SKIP() << "no GPU";\n}\n'
        self.write("tests/base/CMakeLists.txt", "lockstep_tests(base SOURCES text_test.cpp)")
        self.write("tests/base/text_test.cpp", "TEST(TextGpu, Works) " + body)
        self.passes("check_tree.py")
        self.write("tests/base/text_test.cpp", "TEST(Text, Works) " + body)
        self.fails("check_tree.py", saying="Gpu must be in its name")

    def test_tests_in_a_file_that_is_not_called_so(self):
        self.write("tests/base/CMakeLists.txt", "lockstep_tests(base SOURCES text.cpp)")
        self.write("tests/base/text.cpp", "TEST(Text, Works) {}\n")
        self.fails("check_tree.py", saying="must end in _test.cpp")


class Parameters(ToolTest):
    def check(self, text, saying=None):
        self.write("lockstep/base/text.h", text)
        if saying:
            self.fails("check_parameters.py", saying=saying)
        else:
            self.passes("check_parameters.py")

    def test_three_pass_however_they_look(self):
        self.check(
            "namespace lockstep {\n"
            "void f(std::map<int, std::vector<int>> a, int (*b)(int, int), int c = g(1, 2, 3, 4));\n"
            "using Function = void (*)(int, int, int, int);\n"
            "std::function<void(int, int, int, int)> later;\n"
            "// void f(int a, int b, int c, int d);\n"
            'inline const char* text = "f(int a, int b, int c, int d)";\n'
            "inline int h(int a) { return g(a, a, a, a); }\n"
            "struct Point { int x, y, z, w; };\n"
            "}\n"
        )

    def test_four_of_a_function(self):
        self.check("void f(int a, int b, int c, int d);\n", "text.h:1: f() has 4 parameters")

    def test_four_with_defaults_and_over_lines(self):
        self.check("template <typename T>\nint f(T a, const Options& b = {},\n      int c = 0, int d = 0) {",
                   "text.h:1: f() has 4 parameters")

    def test_four_of_a_member_and_of_a_constructor(self):
        self.check("class A {\n public:\n  int f(int a, int b, int c, int d) const;\n};\n",
                   "f() has 4 parameters")
        self.check("A::A(int a, int b, int c, int d) : a_(a), b_{b} {}\n", "A() has 4 parameters")

    def test_a_function_behind_the_body_of_another(self):
        self.check("int f() { if (g({1, 2})) { return 1; } return 2; }\nint h(int, int, int, int);\n",
                   "text.h:2: h() has 4 parameters")


class Names(ToolTest):
    def test_one_name_in_two_modules(self):
        self.write("lockstep/base/text.h", "struct Piece {\n};\n")
        self.write("lockstep/data/cut.h", "class Piece final {\n};\n")
        self.fails("check_names.py", saying="Piece is declared by several modules")

    def test_private_and_nested_types_and_the_enum_of_a_knob_pass(self):
        self.write("lockstep/base/text.h", "struct Piece {\n  struct Part {\n  };\n};\n")
        self.write("lockstep/data/detail/cut.h", "struct Piece {\n};\n")
        self.write("lockstep/data/cut.h", "struct Part;\nstruct Part {\n};\n")
        self.write("lockstep/config/text.h", "enum class Piece { a, b };\n")
        self.passes("check_names.py")


class GitVersion(ToolTest):
    SCRIPT = TOOLS.parent / "lockstep/cli/git_version.cmake"

    def setUp(self):
        super().setUp()
        self.header = self.root.parent / "git_version.h"

    def git(self, *arguments):
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(self.root), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def version(self):
        where = [f"-Dsource={self.root}", f"-Dheader={self.header}"]
        subprocess.run(["cmake", *where, "-P", str(self.SCRIPT)], check=True)
        return self.header.read_text().split('"')[1]

    def test_it_is_the_commit_of_the_moment(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "one")
        first = self.version()
        self.assertTrue(self.git("rev-parse", "HEAD").startswith(first))
        self.write("layers.txt", "changed")
        self.assertEqual(self.version(), first + "-dirty")
        self.git("commit", "-q", "-a", "-m", "two")
        self.assertTrue(self.git("rev-parse", "HEAD").startswith(self.version()))
        self.assertNotEqual(self.version(), first)

    def test_an_unchanged_header_is_left_alone(self):
        self.version()
        os.utime(self.header, (1, 1))
        self.version()
        self.assertEqual(self.header.stat().st_mtime, 1)

    def test_a_tarball_has_none(self):
        self.assertEqual(self.version(), "unknown")

    def test_a_tarball_inside_a_checkout_is_not_that_checkout(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "one")
        self.root /= "unpacked"
        self.root.mkdir()
        self.assertEqual(self.version(), "unknown")


class Format(ToolTest):
    def setUp(self):
        super().setUp()
        self.write(".clang-format", "BasedOnStyle: Google\n")

    def test_a_formatted_source_passes(self):
        self.write("a.cpp", "int main() { return 0; }\n")
        self.passes("check_format.py")

    def test_another_format_fails_and_is_fixed(self):
        self.write("a.cpp", "int  main( )\n{ return 0 ; }\n")
        self.fails("check_format.py", saying="--fix-format")
        self.passes("check_format.py", "--fix")
        self.passes("check_format.py")


class Docs(ToolTest):
    def setUp(self):
        super().setUp()
        self.readme = "# Name\n\n./scripts/demo.sh and ./scripts/test.sh\n\n## Next step: go!\n"
        self.write("README.md", self.readme)

    def test_sound_documents_pass(self):
        self.write("docs/a b.md", "[r](../README.md#next-step-go) [x](https://example.org/y)")
        self.write("README.md", self.readme + "[docs](docs/a%20b.md) [here](#name)\n```\n[n](no.md)\n```\n")
        self.passes("check_docs.py")

    def test_a_link_to_nothing(self):
        self.write("docs/a.md", "[text](missing.md)")
        self.fails("check_docs.py", saying="missing.md, which does not exist")

    def test_a_link_to_no_heading(self):
        self.write("docs/a.md", "[text](../README.md#nothing)")
        self.fails("check_docs.py", saying="no such heading")

    def test_a_readme_without_a_command(self):
        self.write("README.md", "./scripts/demo.sh")
        self.fails("check_docs.py", saying="does not name ./scripts/test.sh")

    def test_a_path_of_one_machine(self):
        for path in ("/home/somebody/x", "/" + "root/.cache/y"):
            self.write("docs/a.md", f"see `{path}`\n")
            self.fails("check_docs.py", saying=f"{path} is a path of one machine")


class Walkthrough(ToolTest):
    def setUp(self):
        super().setUp()
        self.write("README.md", "./scripts/demo.sh and ./scripts/test.sh\n")
        self.write("lockstep/train/step.h", "namespace lockstep::train {\nclass Step { void backward(); };\n}\n")
        self.write("apps/main.cpp", "int main() { return 0; }  // not run()\n")

    def says(self, text, saying):
        self.write("docs/walkthrough.md", text)
        self.fails("check_docs.py", saying=saying)

    def test_what_exists_passes(self):
        self.write(
            "docs/walkthrough.md",
            "`lockstep/train/step.h` has `Step::backward()` and\n`train::Step::backward()`, `main()`, "
            "`section/key`, `step.cpp`, `a.b=c`.\n```\n`lockstep/no.h` `nothing()`\n```\n",
        )
        self.passes("check_docs.py")

    def test_a_file_that_is_not_there(self):
        for name in ("lockstep/train/stop.h", "lockstep/kernels/add.cu", "scripts/no.sh"):
            self.says(f"see `{name}`", saying=f"{name}, which does not exist")

    def test_a_function_that_is_not_there(self):
        self.says("then `forward()`", saying="there is no function forward")
        self.says("then `Step::forward()`", saying="there is no function forward")

    def test_a_function_that_only_a_comment_names(self):
        self.says("then `run()`", saying="there is no function run")

    def test_a_class_that_is_not_there(self):
        self.says("then `Stride::backward()`", saying="there is no Stride")

    def test_other_pages_may_name_what_they_like(self):
        self.write("docs/a.md", "`lockstep/no.h` `nothing()`")
        self.passes("check_docs.py")


if __name__ == "__main__":
    unittest.main()
