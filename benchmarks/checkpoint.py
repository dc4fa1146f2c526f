#!/usr/bin/env python3
"""What a checkpoint costs training, beside a blocking torch.save of the same state.

    benchmarks/checkpoint.py --python PYTHON_WITH_TORCH [--pairs 8] [--batch 256] [--folder .]

`lockstep train` with two ranks on the CPU and an mlp that has about 500 MB of parameters and AdamW state. It saves
every 20 steps, so of two windows of 10 steps that follow each other the first holds a save and the second none: their
difference is what saving every 10 steps costs, free of whatever else changes slowly on this machine; on a machine that
others use, look at the CPU time instead. The time that training waited is what the events say. torch.save runs before
and after, on the same disk.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

import harness

WINDOW = 10
HIDDEN, LAYERS = 4500, 3

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--pairs", type=int, default=8)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--folder", default=".")
arguments = parser.parse_args()


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def cpu_seconds(run):
    """Of all threads of the ranks that train in `run`, so far."""
    ticks = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if str(run).encode() in words and words[0].endswith(b"lockstep_worker"):
                fields = (process / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass  # it has ended
    return ticks / os.sysconf("SC_CLK_TCK")


def watch(training, run):
    """The CPU time at every line of metrics, by step, until the end of `training`."""
    used = {}
    while training.poll() is None:
        metrics = run / "metrics.jsonl"
        last = lines_of(metrics)[-1:] if metrics.exists() else []
        if last and last[0]["split"] == "train" and last[0]["step"] not in used:
            used[last[0]["step"]] = cpu_seconds(run)
        time.sleep(0.02)
    assert training.returncode == 0, "the training failed"
    return used


def train(folder):
    steps = WINDOW * (2 * arguments.pairs + 4) + 1  # the first save finds cold memory and is left out
    run = pathlib.Path(folder).resolve() / "run"
    command = [str(root / "build" / "bin" / "lockstep"), "train",
               str(root / "recipes" / "fashion_mnist_quick.yaml"), "--run-dir", str(run), "--ranks", "2",
               "parallel.device=cpu", "parallel.threads=1", "model.name=mlp", f"model.hidden={HIDDEN}",
               f"model.layers={LAYERS}", f"batch.global={arguments.batch}", f"train.steps={steps}",
               f"train.log_every={WINDOW}", "data.eval_samples=64", f"checkpoint.every={2 * WINDOW}",
               "checkpoint.interval=0s", "checkpoint.keep=1", "checkpoint.final_weights=false"]
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    used = watch(training, run)
    times = {line["step"]: line["time"] for line in lines_of(run / "metrics.jsonl") if line["split"] == "train"}
    saves = {line["step"]: line for line in lines_of(run / "events.jsonl") if line["event"] == "checkpoint"}
    return times, used, saves


def torch_save(folder, rounds):
    return harness.run_json([arguments.python, str(root / "benchmarks" / "peers" / "torch_save.py"), folder,
                             str(HIDDEN), str(LAYERS), str(rounds)])


with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
    load_before = os.getloadavg()
    peer = torch_save(folder, 3)
    times, used, saves = train(folder)
    after = torch_save(folder, 3)
theirs = peer["seconds"] + after["seconds"]
begins = [2 * WINDOW * (pair + 1) for pair in range(1, arguments.pairs + 1)]
blocked = [saves[step]["blocked_seconds"] for step in begins]
with_save = [times[step + WINDOW] - times[step] for step in begins]
without = [times[step + 2 * WINDOW] - times[step + WINDOW] for step in begins]
cost = [(a - b) / b for a, b in zip(with_save, without)]
cpu_with = [used[step + WINDOW] - used[step] for step in begins]
cpu_without = [used[step + 2 * WINDOW] - used[step + WINDOW] for step in begins]
cpu_cost = [(a - b) / b for a, b in zip(cpu_with, cpu_without)]
took = [saves[step]["seconds"] for step in begins]
assert max(took) < min(with_save), "a save lasts longer than the window that is to hold it: take a larger --batch"

waited, their = statistics.median(blocked), statistics.median(theirs)
print(f"training waits for a save: 1/{their / waited:.0f} of torch.save (goal: 1/50 or less)")
print(f"  lockstep waits, ms     {harness.spread([1e3 * s for s in blocked])} (goal: below 20)")
print(f"  torch.save, ms         {harness.spread([1e3 * s for s in theirs])}")
print(f"saving every {WINDOW} steps costs {100 * statistics.median(cost):.2f} % of the step time (goal: below 1 %)")
print(f"  of pairs of windows, % {harness.spread([100 * c for c in cost])}")
print(f"  of their CPU time, %   {harness.spread([100 * c for c in cpu_cost])}")
print(f"  a step, s              {harness.spread([s / WINDOW for s in without])}")
print(f"  from begin to there, s {harness.spread(took)}")
print(f"state: {saves[begins[0]]['bytes'] / 1e6:.0f} MB by rank 0 of 2, torch.save {peer['bytes'] / 1e6:.0f} MB")
print(f"load of the machine before {load_before[0]:.1f}, after {os.getloadavg()[0]:.1f} (2 are ours while it trains); "
      f"{len(cost)} pairs; {harness.cpu_model()}, {os.cpu_count()} cores, {platform.platform()}")
