"""Checks that a type name has one meaning: no two modules declare the same one in their public
headers. A module's private types (detail/, sources, members of a class) are its own affair.

usage: check_names.py ROOT
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import tree

# Names that two modules share on purpose, with the reason.
ALLOWED = {
    "Job": "launcher: its ranks on this machine; service: the same job in the queue",
    "Split": "the parts of a data set, and of the metrics that are measured on them",
}

TYPE = re.compile(r"^(?:struct|class|enum class) (?:alignas\([^)]*\) )?(\w+)\b[^;\n]*\{", re.MULTILINE)


def declared(root):
    """The public headers that declare each type at namespace scope, by name."""
    found = defaultdict(dict)
    for path in tree.files(root):
        parts = path.parts
        if parts[0] != "lockstep" or path.suffix != ".h" or len(parts) != 3:
            continue
        for match in TYPE.finditer((Path(root) / path).read_text()):
            found[match[1]].setdefault(parts[1], path)
    return found


def problems(root):
    for name, places in sorted(declared(root).items()):
        # A knob's enum is named after what it chooses: config::Optimizer, optim::Optimizer.
        modules = [module for module in places if module != "config"]
        if len(modules) < 2 or name in ALLOWED:
            continue
        paths = ", ".join(str(places[module]) for module in sorted(modules))
        yield f"{name} is declared by several modules ({paths}); give each meaning a name"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tree.report(list(problems(sys.argv[1])), "type names have one meaning each")
