#!/usr/bin/env python3
"""From the command to 4 ranks joined and one all-reduce done: Lockstep against torchrun.

    benchmarks/launch.py --python PYTHON_WITH_TORCH [--ranks 4] [--pairs 10]

Ours is `lockstep launch` of the worker's self-test, until all ranks agree: it does every
collective, of which the peer's script does one. The peer's clock stops when the last rank
has printed that its all-reduce is done.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

import harness

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--ranks", type=int, default=4)
parser.add_argument("--pairs", type=int, default=10)
arguments = parser.parse_args()

# Both choose their threads themselves: what a person gets.
environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def seconds_until(words, times, command):
    """From the start of the command to the line that has `words` for the last of `times`."""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment) as job:
        seen, printed = 0, []
        for line in job.stdout:
            printed.append(line)
            seen += words in line
            if seen == times:
                break
        took = time.monotonic() - begin
        rest, errors = job.communicate()
    if seen != times or job.returncode != 0:
        sys.exit(f"{command} ended with {job.returncode}:\n{''.join(printed)}{rest}{errors}")
    return took


def ours():
    binaries = root / "build" / "bin"
    return seconds_until(f"{arguments.ranks} ranks agree", 1, [
        str(binaries / "lockstep"), "launch", "--nproc-per-node", str(arguments.ranks), "--",
        str(binaries / "lockstep_worker"), "--selftest"])


def theirs():
    torchrun = pathlib.Path(arguments.python).parent / "torchrun"
    return seconds_until("all-reduced", arguments.ranks, [
        str(torchrun), "--standalone", "--nproc-per-node", str(arguments.ranks),
        str(root / "benchmarks" / "peers" / "launch.py")])


harness.compare(f"seconds from the command to {arguments.ranks} ranks joined and all-reduced",
                arguments.pairs, ours, theirs, peer_name="torchrun", higher_is_better=False)
