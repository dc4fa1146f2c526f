#!/usr/bin/env python3
"""What a checkpoint costs training, beside a blocking torch.save of the same state.

    benchmarks/checkpoint.py --python PYTHON_WITH_TORCH [--saves 40] [--batch 256] [--device cpu] [--folder .]

`lockstep train` with two ranks on the CPU, or one on a GPU, and an mlp that has about 500 MB of parameters and AdamW
state. It saves every 10 steps. A save is over after a few of them: the five steps that follow its begin are compared
with the five before and the five after those, so that whatever else changes slowly on this machine goes out, and what
the five took more is what saving adds to ten steps. Medians over all saves, with the standard error of a mean. The time
that training waited is what the events say. torch.save runs before and after, on the same disk.
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

EVERY = 10
HALF = EVERY // 2
HIDDEN, LAYERS = 4500, 3

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--saves", type=int, default=40)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--set", nargs="*", default=[], help="further settings of lockstep train")
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
    used, seen, metrics = {}, 0, run / "metrics.jsonl"
    while training.poll() is None:
        size = metrics.stat().st_size if metrics.exists() else 0
        if size > seen:
            with open(metrics, "rb") as file:  # a line may not be whole yet
                file.seek(seen)
                lines = file.read().split(b"\n")[:-1]
            seen += sum(len(line) + 1 for line in lines)
            steps = [json.loads(line) for line in lines]
            used |= {line["step"]: cpu_seconds(run) for line in steps[-1:] if line["split"] == "train"}
        time.sleep(0.01)
    assert training.returncode == 0, "the training failed"
    return used


def train(folder):
    steps = EVERY * (arguments.saves + 2) + HALF + 1  # the first save finds cold memory and is left out
    run = pathlib.Path(folder).resolve() / "run"
    ranks = 2 if arguments.device == "cpu" else 1
    command = [str(root / "build" / "bin" / "lockstep"), "train",
               str(root / "recipes" / "fashion_mnist_quick.yaml"), "--run-dir", str(run), "--ranks", str(ranks),
               f"parallel.device={arguments.device}", "model.name=mlp", f"model.hidden={HIDDEN}",
               f"model.layers={LAYERS}", f"batch.global={arguments.batch}", f"train.steps={steps}",
               "train.log_every=1", "eval.every=0", "data.eval_samples=64", f"checkpoint.every={EVERY}",
               "checkpoint.interval=0s", "checkpoint.keep=1", "checkpoint.final_weights=false",
               *(["parallel.threads=1"] if arguments.device == "cpu" else []), *arguments.set]
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    used = watch(training, run)
    times = {line["step"]: line["time"] for line in lines_of(run / "metrics.jsonl") if line["split"] == "train"}
    saves = {line["step"]: line for line in lines_of(run / "events.jsonl") if line["event"] == "checkpoint"}
    return times, used, saves


def cost(at, saves):
    """What a save adds, as a share of ten steps: one number a save. `at`: a clock at the end of every step."""
    shares = []
    for save in saves:
        if not all(step in at for step in (save - HALF, save, save + HALF, save + EVERY)):
            continue
        without = (at[save] - at[save - HALF] + at[save + EVERY] - at[save + HALF]) / 2
        shares.append((at[save + HALF] - at[save] - without) / (2 * without))
    return shares


def torch_save(folder, rounds):
    return harness.run_json([arguments.python, str(root / "benchmarks" / "peers" / "torch_save.py"), folder,
                             str(HIDDEN), str(LAYERS), str(rounds)])


with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
    load_before = os.getloadavg()
    peer = torch_save(folder, 3)
    times, used, saves = train(folder)
    after = torch_save(folder, 3)
theirs = peer["seconds"] + after["seconds"]
begins = [EVERY * (save + 1) for save in range(1, arguments.saves + 1)]
blocked = [saves[step]["blocked_seconds"] for step in begins]
by_clock, by_cpu = cost(times, begins), cost(used, begins)
took = [saves[step]["seconds"] for step in begins]
step_times = [(times[step + EVERY] - times[step + HALF]) / HALF for step in begins]
# A save that lasted longer would be in the steps that it is compared with.
assert statistics.median(took) < HALF * statistics.median(step_times), (
    f"saves last {statistics.median(took):.2f} s, five steps {HALF * statistics.median(step_times):.2f}: "
    "take a larger --batch")


def percent(shares):
    error = statistics.stdev(shares) / len(shares) ** 0.5
    return f"{100 * statistics.median(shares):.2f} % (mean {100 * statistics.mean(shares):.2f} +- {100 * error:.2f})"


waited, their = statistics.median(blocked), statistics.median(theirs)
print(f"training waits for a save: 1/{their / waited:.0f} of torch.save (goal: 1/50 or less)")
print(f"  lockstep waits, ms     {harness.spread([1e3 * s for s in blocked])} (goal: below 20)")
print(f"  torch.save, ms         {harness.spread([1e3 * s for s in theirs])}")
print(f"saving every {EVERY} steps costs {percent(by_clock)} of the step time (goal: below 1 %)")
print(f"  of their CPU time      {percent(by_cpu)}")
print(f"  a step, s              {harness.spread(step_times)}")
print(f"  from begin to there, s {harness.spread(took)}")
print(f"state: {saves[begins[0]]['bytes'] / 1e6:.0f} MB by rank 0, torch.save {peer['bytes'] / 1e6:.0f} MB")
print(f"load of the machine before {load_before[0]:.1f}, after {os.getloadavg()[0]:.1f}; {len(begins)} saves, "
      f"{arguments.device}; {harness.cpu_model()}, {os.cpu_count()} cores, {platform.platform()}")
