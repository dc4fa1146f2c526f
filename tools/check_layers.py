"""Checks the includes of all sources against the declared dependencies.

usage: check_layers.py ROOT LAYERS

LAYERS is the layers.txt that the build writes: a line a module, `control base:` or
`data optim: base config kernels`. CMake checks the arrows; linking alone does not stop an
include, since all headers share one root.
"""

import re
import sys
from pathlib import Path

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
GLOO = re.compile(r"^gloo/|ProcessGroupGloo\.hpp$")
GLOO_HOME = "lockstep/comm/gloo.cpp"
# A program is no module: it may use what this module may.
PROGRAMS = {
    "apps/lockstep.cpp": "cli",
    "apps/lockstep_worker.cpp": "cli",
    "apps/worker_entry.h": "cli",
    "apps/worker_main.cpp": "describe",
}
SOURCES = (".h", ".cpp", ".cu", ".cuh")


def read_layers(path):
    """{module: (plane, its declared dependencies)}"""
    layers = {}
    for line in path.read_text().splitlines():
        head, _, depends = line.partition(":")
        plane, module = head.split()
        layers[module] = (plane, set(depends.split()))
    return layers


def closure(module, layers):
    """The module and all that it may use, directly or through others."""
    seen, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += layers[name][1]
    return seen


def included_module(include):
    parts = include.split("/")
    return parts[1] if parts[0] == "lockstep" and len(parts) > 2 else None


# A communicator says what it is (comm::Traits): code that compares names of backends
# forgets the next one. These two are the table of them and the format that names them.
BACKENDS = re.compile(
    r'(?:==|!=)\s*"(?:nccl|gloo|shm|local|modelled|staged)"|'
    r"backend\(\)\s*(?:==|!=)|(?:==|!=)\s*(?:config::)?CommBackend::"
)
BACKEND_HOMES = ("lockstep/comm/", "lockstep/config/", "lockstep/hardware/measured.h")


def check_backends(path, text):
    """A source of ours that decides by the name of a backend."""
    name = path.as_posix()
    if not name.startswith(("lockstep/", "apps/")) or name.startswith(BACKEND_HOMES):
        return
    for found in BACKENDS.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield f"{path}:{line}: compares the name of a backend; ask comm::Traits instead"


def check_any(path, include):
    """Rules for every source, whatever it belongs to."""
    used = included_module(include)
    if GLOO.search(include) and path.as_posix() != GLOO_HOME:
        return f"includes {include}; only {GLOO_HOME} may see gloo's headers"
    # A test of a module may look inside it.
    if used and "/detail/" in include and path.parts[:2][-1] != used:
        return f"includes {include}, which is private to {used}"
    return None


def check_module(include, module, layers):
    """Rules for a source of a module."""
    used = included_module(include)
    if layers[module][0] == "control" and TORCH.search(include):
        return f"includes {include}, but {module} is control plane: no LibTorch there"
    if used and used not in closure(module, layers):
        return f"includes {include}, but {module} does not depend on {used}"
    return None


def module_of(path):
    if path.parts[0] == "lockstep" and len(path.parts) > 2:
        return path.parts[1]
    return PROGRAMS.get(path.as_posix())


def check(root, layers):
    whole = any(plane == "data" for plane, _ in layers.values())
    for path in tree.files(root):
        if path.suffix not in SOURCES:
            continue
        module = module_of(path)
        if path.suffix in (".cu", ".cuh") and module != "kernels":
            yield f"{path}: CUDA sources belong to lockstep/kernels"
        if module and module not in layers:
            if whole:  # a build without the data plane declares only the other half
                yield f"{path}: module '{module}' is not declared in lockstep/CMakeLists.txt"
            continue
        text = (root / path).read_text()
        yield from check_backends(path, text)
        for include in INCLUDE.findall(text):
            problem = check_any(path, include)
            if not problem and module:
                problem = check_module(include, module, layers)
            if problem:
                yield f"{path}: {problem}"


if __name__ == "__main__":
    ROOT, LAYERS = Path(sys.argv[1]), read_layers(Path(sys.argv[2]))
    tree.report(list(check(ROOT, LAYERS)), f"{len(LAYERS)} modules keep to their layers")
