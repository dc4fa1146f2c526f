#!/usr/bin/env python3
"""ZeRO's stages on two CPU ranks of one thread each: against ddp that updates all of the model on
every rank, and against PyTorch's ZeroRedundancyOptimizer and FSDP2 over Gloo.

    benchmarks/zero.py --lockstep build/bin/lockstep --python PYTHON_WITH_TORCH [--rounds 5] [--steps 20]
                       [--cores 0-1] [--backend auto|shm|gloo] [--only mlp,gpt]

Ours are whole runs of the trainer (`lockstep bench`), PyTorch's a bare loop over one fixed batch.
Everything that is compared runs once in every round; a ratio is the median over the rounds of the
ratio in one round. Prints the rows of the results page.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import harness

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--lockstep", required=True)
parser.add_argument("--python", required=True)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--cores", default="", help="as taskset -c takes them; empty: all")
parser.add_argument("--backend", default="auto")
parser.add_argument("--only", default="mlp,gpt")
arguments = parser.parse_args()
environment = dict(os.environ, OMP_NUM_THREADS="1")
prefix = ["taskset", "-c", arguments.cores] if arguments.cores else []

MLP = """
model: {name: mlp, hidden: 1024, layers: 8}
data: {name: synthetic, shape: [1024], dtype: float32, classes: 10, synthetic_samples: 20000}
batch: {per_rank: 64}
optim: {name: adamw, lr: 1e-3}
"""
GPT = """
model: {name: gpt, hidden: 192, layers: 4, heads: 6}
data: {name: synthetic, shape: [128], dtype: int64, classes: 1024, synthetic_samples: 20000}
batch: {per_rank: 4}
optim: {name: adamw, lr: 1e-3}
"""


def ours(recipe, strategy):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "recipe.yaml"
        path.write_text(recipe)
        command = [arguments.lockstep, "bench", str(path), "--strategies", strategy, "--ranks", "2", "--steps",
                   str(arguments.steps), "--run-dir", folder + "/bench", "--json", "parallel.device=cpu",
                   "parallel.threads=1", "parallel.persist_below=0", f"comm.backend={arguments.backend}"]
        if strategy == "ddp":
            command.append("parallel.shard_update=off")
        output = subprocess.run(prefix + command, env=environment, stdout=subprocess.PIPE, check=True)
        return json.loads(output.stdout)["results"][0]["samples_per_second"]


def theirs(how):
    torchrun = [arguments.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    peer = [str(root / "benchmarks" / "peers" / "ddp.py"), "mlp", "64", str(arguments.steps), how]
    return harness.run_json(prefix + torchrun + peer, env=environment)["samples_s"]


def in_turn(sides):
    speeds = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, measure in sides.items():
            speeds[name].append(measure())
    return speeds


def compare(speeds, model, one, other, least):
    ratios = [a / b for a, b in zip(speeds[one], speeds[other])]
    ratio = statistics.median(ratios)
    print(f"| {model}: {one} over {other} | **{ratio:.2f} x** ({min(ratios):.2f} to {max(ratios):.2f}) | "
          f"{statistics.median(speeds[one]):.0f} and {statistics.median(speeds[other]):.0f} samples/s | "
          f"{least}: {'met' if ratio >= least else 'missed'} |", flush=True)


def stages(recipe):
    return {name: lambda name=name: ours(recipe, name) for name in ("ddp", "zero1", "zero2", "zero3")}


def mlp():
    peers = {f"pytorch {how}": lambda how=how: theirs(how) for how in ("ddp", "zero1", "fsdp2")}
    speeds = in_turn(stages(MLP) | peers)
    for one, other, least in (("zero1", "ddp", 0.97), ("zero2", "ddp", 0.97), ("zero3", "ddp", 0.90),
                              ("zero1", "pytorch zero1", 1.2), ("zero3", "pytorch fsdp2", 2.0),
                              ("ddp", "pytorch ddp", 1.0)):
        compare(speeds, "mlp", one, other, least)


def gpt():
    speeds = in_turn(stages(GPT))
    for stage, least in (("zero1", 0.97), ("zero2", 0.97), ("zero3", 0.90)):
        compare(speeds, "gpt", stage, "ddp", least)


for question in arguments.only.split(","):
    {"mlp": mlp, "gpt": gpt}[question]()
