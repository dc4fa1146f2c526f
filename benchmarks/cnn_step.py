#!/usr/bin/env python3
"""One training step of the CNN, batch 128, one thread: Lockstep against PyTorch eager.

Runs both sides in turn on this machine and prints the ratio first:

    cmake --build build --target bench_cnn_step
    benchmarks/cnn_step.py --python PYTHON_WITH_TORCH [--peer SCRIPT] [--pairs 10]

The peer's script is called as `SCRIPT cnn BATCH STEPS` and prints a JSON line with
`samples_s`.
"""
import argparse
import pathlib

import harness

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--peer", default=str(root / "benchmarks" / "peers" / "cnn_step.py"))
parser.add_argument("--pairs", type=int, default=10)
parser.add_argument("--steps", default="40")
parser.add_argument("--batch", default="128")
arguments = parser.parse_args()

ours = [str(root / "build" / "benchmarks" / "bench_cnn_step"), arguments.batch, arguments.steps]
peer = [arguments.python, arguments.peer, "cnn", arguments.batch, arguments.steps]
harness.compare(
    "samples/s of one CNN step", arguments.pairs,
    lambda: harness.run_json(ours)["samples_s"],
    lambda: harness.run_json(peer)["samples_s"],
    peer_name="PyTorch eager")
