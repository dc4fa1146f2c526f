"""Makes every addition of the table in CONTRIBUTING.md, each in a copy of lockstep/ of its own: it
changes exactly the files that the table names, at most three, and what is changed compiles as it
does in the build, beside the sources that use it.

usage: additions_test.py BUILD_FOLDER [Files | Compiles]

Files takes seconds. Compiles takes the commands of compile_commands.json; an addition to a module
that this build does not have is skipped.
"""

import dataclasses
import filecmp
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
NEW_SOURCES = Path(__file__).resolve().parent / "additions"
BUILD = Path()  # the first argument
MOST_FILES = 3
COMPILERS = 2  # at once: a compile of the data plane takes a GB
KNOBS = "lockstep/config/knobs.cpp"  # includes every section; its command needs no LibTorch


def only(found, place):
    if len(found) != 1:
        raise AssertionError(f"'{place}' is there {len(found)} times: correct this test")
    return found[0]


def replaced(pattern, text, source):
    """`source` with the only match of `pattern` replaced; `text` may be a function of the match."""
    match = only(list(re.finditer(pattern, source, re.DOTALL)), pattern)
    new = text(match) if callable(text) else text
    return source[: match.start()] + new + source[match.end() :]


def behind(place, text):
    return lambda source: replaced(re.escape(place), place + text, source)


def before(place, text):
    return lambda source: replaced(re.escape(place), text + place, source)


def instead_of(place, text):
    return lambda source: replaced(re.escape(place), text, source)


def built_beside(sibling, name):
    """A source more in a CMakeLists.txt."""
    return lambda text: replaced(rf"(?<![\w.]){re.escape(sibling)}", f"{sibling} {name}", text)


def in_list(macro, entry, ahead_of):
    """X(name) or X(name, trait) in a list like LOCKSTEP_MODELS."""

    def change(match):
        lines = match[0].replace("\\\n", "\n").splitlines()
        entries = [line.strip() for line in lines[1:]]
        entries.insert(entries.index(f"X({ahead_of})"), f"X({entry})")
        lines = [lines[0].rstrip(), *(f"  {entry}" for entry in entries)]
        width = max(len(line) for line in lines[:-1]) + 1
        return "\n".join([*(line.ljust(width) + "\\" for line in lines[:-1]), lines[-1]])

    entries = r"(\\\n  X\(\w+(?:, \w+)?\) *)+"
    return lambda text: replaced(rf"#define {macro}\(X\) *{entries}(?=\n)", change, text)


def in_enum(enum, name):
    """An enumerator and its name, behind the others."""

    def change(text):
        text = replaced(rf"(enum class {enum} {{\n[^}}]*?),?\n}};",
                        lambda match: f"{match[1]},\n  {name},\n}};", text)
        names = rf"string_view, (\d+)> names_of\({enum}\) {{\n  return {{([^}}]*)}};"
        return replaced(
            names,
            lambda match: f"string_view, {int(match[1]) + 1}> names_of({enum}) {{\n"
            f'  return {{{match[2]}, "{name}"}};',
            text,
        )

    return change


@dataclasses.dataclass
class Addition:
    words: dict  # what stands for the table's <placeholders>
    # What is done to a file, by its path; a new source is a file of additions/.
    edits: dict
    user: str  # the source that uses the changed header
    # A program that compiles only if the addition is there.
    proof: str
    # Sources with a switch over it have to be complete.
    enum: str = ""
    # What `user` calls and the new source has.
    function: str = ""
    runs_proof: bool = False


def has(names, name):
    return f"""
#include <algorithm>
template <typename Names>
constexpr bool has(const Names& all, std::string_view name) {{
  return std::find(all.begin(), all.end(), name) != all.end();
}}
static_assert(has({names}, "{name}"));
"""


KNOB = Addition(
    words={"section": "optim", "module": "optim", "source": "groups"},
    edits={
        "lockstep/config/optim.h": [
            behind("  double layer_decay = 1;\n", "  double bias_lr = 1;\n"),
            behind(
                ".range = {.low = 0, .high = 1, .low_is_open = true}});\n",
                '  v.field("bias_lr", c.bias_lr,\n'
                '          {.help = "Learning rate of biases and norms relative to the others.",\n'
                "           .range = above(0)});\n",
            ),
        ],
        "lockstep/optim/groups.cpp": [
            before(
                "    options.push_back(\n",
                "    const auto own = parameters[i].num_dimensions <= 1 ? config.bias_lr : 1;\n",
            ),
            instead_of(
                "std::pow(config.layer_decay, above)", "own * std::pow(config.layer_decay, above)"
            ),
        ],
    },
    user="lockstep/config/knobs.cpp",
    proof="""
#include "lockstep/config/config.h"
struct Look {
  bool found = false;
  std::string_view section_name = {};
  template <typename Members>
  void section(std::string_view name, Members& members, std::string_view) {
    section_name = name;
    describe(members, *this);
  }
  template <typename T>
  void field(std::string_view name, T&, const lockstep::config::Field&) {
    found |= section_name == "optim" && name == "bias_lr";
  }
};
int main() {
  lockstep::config::Config config;
  Look look;
  describe(config, look);
  return look.found && config.optim.bias_lr == 1 ? 0 : 1;
}
""",
    runs_proof=True,
)

MODEL = Addition(
    words={"name": "softmax"},
    edits={
        "lockstep/models/softmax.cpp": "softmax.cpp.txt",
        "lockstep/models/CMakeLists.txt": [built_beside("registry.cpp", "softmax.cpp")],
        "lockstep/config/model.h": [
            in_list("LOCKSTEP_MODELS", "softmax, numbers", ahead_of="mlp, numbers")
        ],
    },
    user="lockstep/models/registry.cpp",
    proof='#include "lockstep/config/model.h"\n' + has("lockstep::config::kModels", "softmax"),
    function="lockstep::models::make_softmax",
)

DATA_SET = Addition(
    words={"name": "stl10"},
    edits={
        "lockstep/data/stl10.cpp": "stl10.cpp.txt",
        "lockstep/data/CMakeLists.txt": [built_beside("open.cpp", "stl10.cpp")],
        "lockstep/config/data.h": [
            in_list("LOCKSTEP_DATASETS", "stl10, folder", ahead_of="synthetic, none")
        ],
    },
    user="lockstep/data/open.cpp",
    proof='#include "lockstep/config/data.h"\n' + has("lockstep::config::kDatasets", "stl10"),
    function="lockstep::data::open_stl10",
)

OPTIMIZER = Addition(
    words={"name": "sign_sgd"},
    edits={
        "lockstep/optim/sign_sgd.cpp": "sign_sgd.cpp.txt",
        "lockstep/optim/CMakeLists.txt": [built_beside("optimizer.cpp", "sign_sgd.cpp")],
        "lockstep/config/optim.h": [
            in_list("LOCKSTEP_OPTIMIZERS", "sign_sgd, 1", ahead_of="lion, 1")
        ],
    },
    user="lockstep/optim/optimizer.cpp",
    proof="""
#include "lockstep/config/optim.h"
using lockstep::config::Optimizer;
static_assert(name_of(Optimizer::sign_sgd) == "sign_sgd");
static_assert(name_of(Optimizer::lion) == "lion");
""",
    enum="Optimizer",
    function="lockstep::optim::make_sign_sgd",
)

LOSS = Addition(
    words={},
    edits={
        "lockstep/config/task.h": [in_enum("Criterion", "log_cosh")],
        "lockstep/task/kinds.cpp": [
            behind("    case Criterion::huber:\n", "    case Criterion::log_cosh:\n")
        ],
        "lockstep/task/losses.cpp": [
            before(
                "  // s * (e - s / 2) with s = e up to delta",
                "  if (options.kind == config::Criterion::log_cosh) {\n"
                "    return counted_sum(error + torch::softplus(-2 * error) - std::log(2.0), counted);\n"
                "  }\n",
            ),
            instead_of("#include <limits>\n", "#include <cmath>\n#include <limits>\n"),
        ],
    },
    user="lockstep/task/regression.cpp",
    proof="""
#include "lockstep/config/task.h"
using lockstep::config::Criterion;
static_assert(name_of(Criterion::log_cosh) == "log_cosh");
static_assert(name_of(Criterion::huber) == "huber");
""",
    enum="Criterion",
)

METRIC = Addition(
    words={},
    edits={
        "lockstep/config/eval.h": [in_enum("EvalMetric", "balanced_accuracy")],
        "lockstep/task/kinds.cpp": [
            behind(
                "    case EvalMetric::confusion:\n", "    case EvalMetric::balanced_accuracy:\n"
            )
        ],
        "lockstep/task/class_metrics.cpp": [
            before(
                "// Counts how often each class was taken for each other",
                """\
// The mean over classes of the share of each that is answered right.
class BalancedAccuracy : public PerClass {
 public:
  using PerClass::PerClass;

 protected:
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    double total = 0, seen = 0;
    for (const auto& of : counts(sums)) {
      if (of.targets == 0) continue;
      total += of.right / of.targets;
      ++seen;
    }
    return {{"balanced_accuracy", mean_or_nan(total, seen), Better::more, true}};
  }
};

""",
            ),
            before(
                "    case EvalMetric::confusion:\n      check_classes",
                "    case EvalMetric::balanced_accuracy:\n"
                "      check_classes(metric, num_classes);\n"
                "      return std::make_unique<BalancedAccuracy>(num_classes);\n",
            ),
        ],
    },
    user="lockstep/task/classification.cpp",
    proof="""
#include "lockstep/config/eval.h"
using lockstep::config::EvalMetric;
static_assert(name_of(EvalMetric::balanced_accuracy) == "balanced_accuracy");
static_assert(name_of(EvalMetric::r2) == "r2");
""",
    enum="EvalMetric",
)

BACKEND = Addition(
    words={"name": "through_host"},
    edits={
        "lockstep/comm/through_host.cpp": "through_host.cpp.txt",
        "lockstep/comm/CMakeLists.txt": [built_beside("backends.cpp", "through_host.cpp")],
        "lockstep/config/comm.h": [
            in_enum("CommBackend", "through_host"),
            in_list("LOCKSTEP_BACKENDS", "through_host", ahead_of="shm"),
        ],
    },
    user="lockstep/comm/backends.cpp",
    proof="""
#include "lockstep/config/comm.h"
using lockstep::config::CommBackend;
static_assert(name_of(CommBackend::through_host) == "through_host");
static_assert(name_of(CommBackend::modelled) == "modelled");
""",
    enum="CommBackend",
    function="lockstep::comm::detail::through_host_backend",
)

SINK = Addition(
    words={"name": "influx"},
    edits={
        "lockstep/monitor/influx_sink.cpp": "influx_sink.cpp.txt",
        "lockstep/monitor/CMakeLists.txt": [built_beside("sink.cpp", "influx_sink.cpp")],
        "lockstep/config/monitor.h": [in_list("LOCKSTEP_SINKS", "influx", ahead_of="wandb")],
    },
    user="lockstep/monitor/sink.cpp",
    proof="""
#include "lockstep/config/monitor.h"
using lockstep::config::Sink;
static_assert(name_of(Sink::influx) == "influx");
static_assert(name_of(Sink::wandb) == "wandb");
""",
    enum="Sink",
    function="lockstep::monitor::make_influx_sink",
)

COMMAND = Addition(
    words={"name": "where"},
    edits={
        "lockstep/cli/where.cpp": "where.cpp.txt",
        "lockstep/cli/CMakeLists.txt": [built_beside("run.cpp", "where.cpp")],
        "lockstep/cli/command.h": [in_list("LOCKSTEP_COMMANDS", "where", ahead_of="top")],
    },
    user="lockstep/cli/run.cpp",
    proof="""
#include <array>
#include "lockstep/cli/command.h"
#define NAME(name) std::string_view(#name),
constexpr std::array kCommands{LOCKSTEP_COMMANDS(NAME)};
"""
    + has("kCommands", "where"),
    function="lockstep::cli::where_command",
)

ADDITIONS = {
    "a knob": KNOB,
    "a model": MODEL,
    "a loss": LOSS,
    "a metric": METRIC,
    "a data set": DATA_SET,
    "an optimizer": OPTIMIZER,
    "a backend": BACKEND,
    "a sink": SINK,
    "a command": COMMAND,
}


@dataclasses.dataclass
class Row:
    files: list
    tests: list
    documents: list


def table():
    """The rows of the table, by what is added."""
    section = (SOURCE / "CONTRIBUTING.md").read_text().split("\n## How to add\n")[1]
    section = section.split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = {}
    for line in lines[2:]:  # the heading, and the line below it
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = Row(*(re.findall(r"`([^`]+)`", cell) for cell in cells))
    return rows


def filled(name, words):
    return re.sub(r"<(\w+)>", lambda match: words[match[1]], name)


class Scratch:
    """A copy of lockstep/ with one addition."""

    def __init__(self, case, addition):
        folder = tempfile.TemporaryDirectory()
        case.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        shutil.copytree(SOURCE / "lockstep", self.root / "lockstep")
        for name, edits in addition.edits.items():
            path = self.root / name
            if isinstance(edits, str):
                if path.exists():
                    raise AssertionError(f"{name} exists: the addition needs another name")
                shutil.copyfile(NEW_SOURCES / edits, path)
                continue
            text = path.read_text()
            for edit in edits:
                text = edit(text)
            path.write_text(text)

    def files(self):
        for folder, _, names in os.walk(self.root / "lockstep"):
            yield from (str((Path(folder) / name).relative_to(self.root)) for name in names)

    def changed(self):
        """What differs from the repository, whatever the addition says that it does."""
        return {
            name
            for name in self.files()
            if not (SOURCE / name).exists()
            or not filecmp.cmp(SOURCE / name, self.root / name, shallow=False)
        }

    def with_switch_over(self, enum):
        """The sources that name enumerators in a switch."""
        case = re.compile(rf"\bcase\s+(?:\w+::)*{enum}::")
        return {
            name
            for name in self.files()
            if name.endswith(".cpp") and case.search((self.root / name).read_text())
        }


class Files(unittest.TestCase):
    def test_the_table_has_the_additions_that_are_made_here(self):
        self.assertEqual(list(table()), list(ADDITIONS))

    def test_an_addition_changes_the_files_of_its_row_and_passes_the_checks_of_the_tree(self):
        rows = table()
        for name, addition in ADDITIONS.items():
            with self.subTest(name):
                scratch = Scratch(self, addition)
                says = {filled(file, addition.words) for file in rows[name].files}
                self.assertEqual(says, scratch.changed())
                self.assertLessEqual(len(says), MOST_FILES)
                self.check_with("check_tree.py", scratch.root)
                self.check_with("check_layers.py", scratch.root, BUILD / "layers.txt")

    def check_with(self, tool, *arguments):
        command = [sys.executable, SOURCE / "tools" / tool, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_places_of_tests_and_documents_exist(self):
        for name, row in table().items():
            with self.subTest(name):
                self.assertTrue(row.tests)
                self.assertTrue(row.documents)
                for file in row.tests + row.documents:
                    # A new file has a folder that is there.
                    place = Path(file).parent if "<" in file else Path(file)
                    self.assertTrue((SOURCE / place).exists(), file)


def sources_of(file):
    """What a file of compile_commands.json stands for: itself, or with LOCKSTEP_UNITY the sources
    that it joins."""
    if BUILD in file.parents and file.suffix == ".cpp":
        return re.findall(r'^#include "(lockstep/[^"]+\.cpp)"$', file.read_text(), re.MULTILINE)
    return [os.path.relpath(file, SOURCE)]


class Compiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        entries = json.loads((BUILD / "compile_commands.json").read_text())
        cls.commands = {
            source: (shlex.split(entry["command"]), entry["directory"])
            for entry in entries
            for source in sources_of(Path(os.path.realpath(entry["file"])))
        }
        layers = (BUILD / "layers.txt").read_text()
        cls.modules = re.findall(r"^\w+ (\w+):", layers, re.MULTILINE)

    def command_for(self, root, name, like, result):
        """The command of the source `like`, for a source of the copy; no `result`: only a look."""
        words, folder = self.commands[like]
        own = f"-I{root}"
        words = [
            own if word.startswith("-I") and os.path.realpath(word[2:]) == str(SOURCE) else word
            for word in words
        ]
        self.assertIn(own, words, "headers would come from the repository, not from the copy")
        at = words.index("-o")
        words[at : at + 2] = ["-o", str(result)] if result else ["-fsyntax-only"]
        at = words.index("-c")
        words[at : at + 2] = ["-c", str(root / name)]
        return words, folder

    def compile(self, root, name, like, result):
        words, folder = self.command_for(root, name, like, result)
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        return f"{name} does not compile:\n{done.stderr}" if done.returncode else ""

    def run_proof(self, root):
        words, folder = self.command_for(root, "proof.cpp", KNOBS, root / "proof")
        words.remove("-c")
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(subprocess.run([root / "proof"], check=False).returncode, 0)

    def symbols(self, file, kind):
        done = subprocess.run(
            ["nm", "-C", kind, str(file)], capture_output=True, text=True, check=True
        )
        return {line.split(maxsplit=2 if kind == "--defined-only" else 1)[-1]
                for line in done.stdout.splitlines()}

    def check_function(self, root, addition, new):
        """The user's declaration and the new source agree, which only a link would show."""
        called = {
            name
            for name in self.symbols(self.result_of(root, addition.user), "--undefined-only")
            if name.startswith(addition.function + "(")
        }
        self.assertEqual(len(called), 1, f"{addition.user} does not call {addition.function}()")
        self.assertLessEqual(called, self.symbols(self.result_of(root, new), "--defined-only"))

    @staticmethod
    def result_of(root, name):
        return root / (name.replace("/", "_") + ".o")

    def check(self, addition):
        scratch = Scratch(self, addition)
        root = scratch.root
        (root / "proof.cpp").write_text(addition.proof)
        new = [name for name, edits in addition.edits.items() if isinstance(edits, str)]
        changed = {name for name in scratch.changed() if name.endswith(".cpp")}
        looked_at = scratch.with_switch_over(addition.enum) if addition.enum else set()
        looked_at &= self.commands.keys()  # without those that other machines compile
        if any(name.startswith("lockstep/config/") for name in addition.edits):
            looked_at.add(KNOBS)
        built = {addition.user} | changed
        jobs = [
            (root, name, addition.user if name in new else name, self.result_of(root, name))
            for name in sorted(built)
        ]
        jobs += [(root, name, name, None) for name in sorted(looked_at - built)]
        jobs += [(root, "proof.cpp", KNOBS, None)]
        for _, _, like, _ in jobs:
            module = Path(like).parts[1]
            if module not in self.modules:
                self.skipTest(f"this build has no lockstep/{module}")
            self.assertIn(like, self.commands, "correct this test, or configure again")
        with ThreadPoolExecutor(COMPILERS) as pool:
            problems = "".join(pool.map(lambda job: self.compile(*job), jobs))
        if problems:
            self.fail(problems)
        if addition.function:
            self.check_function(root, addition, only(new, "new source"))
        if addition.runs_proof:
            self.run_proof(root)


for name_of_it, one in ADDITIONS.items():
    setattr(
        Compiles,
        "test_" + name_of_it.replace(" ", "_"),
        lambda self, addition=one: self.check(addition),
    )

if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
