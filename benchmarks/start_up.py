#!/usr/bin/env python3
"""From the command to the first finished step: Lockstep against PyTorch eager.

    benchmarks/start_up.py --python PYTHON_WITH_TORCH [--peer SCRIPT] [--pairs 10]

Ours is the whole of `lockstep train recipes/fashion_mnist_quick.yaml`: reading the recipe,
planning, starting the worker, loading LibTorch and the real images. The peer imports torch,
makes the same model and takes a step on random numbers.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import harness

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--peer", default=str(root / "benchmarks" / "peers" / "cnn_step.py"))
parser.add_argument("--pairs", type=int, default=10)
arguments = parser.parse_args()


def ours():
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        subprocess.run([str(root / "build" / "bin" / "lockstep"), "train",
                        str(root / "recipes" / "fashion_mnist_quick.yaml"),
                        "--run-dir", folder + "/run"], check=True, capture_output=True)
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            first = json.loads(file.readline())
        assert first["step"] == 1, first
        return first["time"] - begin


def theirs():
    begin = time.time()
    peer = subprocess.Popen([arguments.python, arguments.peer, "cnn", "64", "1"],
                            stdout=subprocess.PIPE, text=True)
    line = json.loads(peer.communicate()[0].strip().splitlines()[-1])
    # The script's own clock starts once the interpreter runs: add what came before it.
    return line["start_to_first_step_s"] + max(0.0, line.get("started", begin) - begin)


harness.compare("seconds from the command to the first finished step", arguments.pairs,
                ours, theirs, peer_name="PyTorch eager", higher_is_better=False)
