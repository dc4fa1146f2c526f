"""Checks that a function takes at most three parameters: more of them become a struct, whose
members are named where it is called.

usage: check_parameters.py ROOT
"""

import re
import sys
from pathlib import Path

import tree

MEASURED_FOLDERS = ("lockstep", "apps")
MOST_PARAMETERS = 3

# Functions that take more, by file, each group with its reason.
ALLOWED = {}


def allow(text):
    for line in text.strip().splitlines():
        path, names = line.split(": ")
        ALLOWED.setdefault("lockstep/" + path.strip(), set()).update(names.split(", "))


# LibTorch calls them, or yaml-cpp: the signature is theirs.
allow("""
    config/yaml.cpp: OnScalar, OnSequenceStart, OnMapStart
    models/deferred.cpp: convolution, convolution_backward, batch_norm, batch_norm_backward
    models/deferred.cpp: attention, attention_backward, embedding_dense_backward
    models/deferred.cpp: layer_norm, layer_norm_backward
    models/recompute.cpp: forward
    parallel/sync_batch_norm.cpp: batch_norm, instance_norm
    parallel/sync_batch_norm_function.cpp: forward
""")

# Operators with the arguments that PyTorch's have, collectives with their call site.
allow("""
    comm/communicator.h: reduce_scatter, all_to_all, send, recv
    comm/communicator.cpp: reduce_scatter, all_to_all, send, recv
    models/gpt.cpp: fused, by_hand
    task/losses.h: cross_entropy, binary_cross_entropy, regression_loss
    task/losses.cpp: cross_entropy, binary_cross_entropy, regression_loss
    task/losses.cpp: focal, focal_of_shares
""")

# Inner loops and kernels: pointers, and how many elements.
allow("""
    comm/reduce.cpp: combine
    data/decode.cpp: split_row
    data/transforms/mix.cpp: average
    data/transforms/resize.cpp: add_scaled
    kernels/add_relu_cuda.cu: add_relu_kernel
    kernels/detail/rules.h: apply, coefficients
    kernels/norm.cpp: sum_block
    kernels/norm_cuda.cu: launch
""")



def without_comments_and_texts(source):
    """The source with comments and literals blanked, line by line the same."""
    pattern = re.compile(
        r'R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'
        r"'(?:\\.|[^'\\\n])'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
        re.DOTALL | re.MULTILINE,
    )
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)


def declarations(source):
    """(line, text) of what stands outside of function bodies, up to its ; or {."""
    scopes = []  # of the open braces: whether declarations stand there
    begin = parentheses = 0
    for match in re.finditer(r"[;{}()]", source):
        if match[0] in "()":
            parentheses += 1 if match[0] == "(" else -1
            continue
        if parentheses > 0:  # a default argument, or what a function is called with
            continue
        text = source[begin : match.start()]
        if match[0] != "}" and all(scopes) and text.strip():
            yield source.count("\n", 0, begin + len(text) - len(text.lstrip())) + 1, text
        if match[0] == "{":
            scopes.append(all(scopes) and opens_scope(text))
        elif match[0] == "}" and scopes:
            scopes.pop()
        begin = match.end()


def opens_scope(text):
    """Whether declarations follow: not in the body of a function, or in a list of values."""
    without_template = re.sub(r"template\s*<[^{]*?>\s*(?=class|struct|union)", "", text)
    return bool(re.match(r"\s*((public|private|protected)\s*:\s*)*(inline\s+)?"
                         r"(namespace|class|struct|union|extern)\b[^()]*"
                         r"(alignas\([^)]*\)[^()]*)?$", without_template))


def split_top_level(text):
    """The parts between commas that no bracket holds."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += letter in "([{<"
        depth -= letter in ")]}>"
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [part for part in [*parts, part] if part.strip()]


def parameters(text):
    """(name, parameters) of a function's declaration; None for anything else."""
    text = re.sub(r"->", "  ", text)  # its > closes nothing
    text = re.sub(r"\b(public|private|protected)\s*:(?!:)", " ", text)
    text = re.sub(r"\[\[.*?\]\]", " ", text)
    if re.match(r"\s*[,:]", text):  # the rest of a constructor's initializers
        return None
    if re.match(r"\s*(using|typedef|return|static_assert|enum|friend\s+class)\b", text):
        return None
    depth = 0
    for at, letter in enumerate(text):
        if letter in "<>":
            depth += 1 if letter == "<" else -1
        if letter == "=" and depth == 0 and not text[:at].rstrip().endswith("operator"):
            return None  # a variable with its value
        if letter == "(" and depth <= 0:
            head = re.search(r"(operator\s*\S+|~?\w+)\s*$", text[:at])
            if not head or (head[1] == "operator" and text[at : at + 2] == "()"):
                continue
            return head[1], split_top_level(text[at + 1 : closing(text, at)])
    return None


def closing(text, at):
    depth = 0
    for place in range(at, len(text)):
        depth += text[place] == "("
        depth -= text[place] == ")"
        if depth == 0:
            return place
    return len(text)


def check(root):
    for path in tree.files(root):
        if path.parts[0] not in MEASURED_FOLDERS or path.suffix not in (".h", ".cpp", ".cu"):
            continue
        allowed = ALLOWED.get(str(path), set())
        for line, text in declarations(without_comments_and_texts((root / path).read_text())):
            found = parameters(text)
            if not found or len(found[1]) <= MOST_PARAMETERS:
                continue
            if found[0] in allowed:
                continue
            yield (
                f"{path}:{line}: {found[0]}() has {len(found[1])} parameters, more than "
                f"{MOST_PARAMETERS}: give them a struct (CONTRIBUTING.md)"
            )


if __name__ == "__main__":
    tree.report(list(check(Path(sys.argv[1]))), "functions take few parameters")
