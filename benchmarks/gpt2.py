#!/usr/bin/env python3
"""GPT-2 on one GPU: whole runs of `lockstep train`, with the model's own passes, against PyTorch.

    benchmarks/gpt2.py [--lockstep build-cuda/bin/lockstep] [--peer bench_gpt2.py] CASE ...

A CASE is SIZE,BATCH,MODE such as 124M,32,compile: both sides train on 1,024 tokens a row in bf16, with AdamW and
clipping. `--peer` is a program that trains "SIZE,BATCH,1024,MODE,50304" and prints its median step as JSON ("ms",
"peak_GB", "warm_s"); without one only our side runs. Ours is the median of windows of 10 steps after the first ones.
"""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parents[1]
sizes = {"124M": "gpt2", "350M": "gpt2-medium", "774M": "gpt2-large", "1.5B": "gpt2-xl"}
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--lockstep", default=str(root / "build-cuda" / "bin" / "lockstep"))
parser.add_argument("--peer", default="")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE")
parser.add_argument("cases", nargs="+")
arguments = parser.parse_args()


def write_tokens(path, count):
    """Random tokens in llm.c's format."""
    draw = random.Random(1)
    header = array.array("i", [20240520, 1, count] + [0] * 253)
    tokens = array.array("H", (draw.randrange(50257) for _ in range(count)))
    with open(path, "wb") as file:
        header.tofile(file)
        tokens.tofile(file)


def first_finished_step(run, begin):
    """Seconds from the command to the line of step 1."""
    with open(run / "metrics.jsonl", encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record["split"] == "train":
                return record["time"] - begin if "time" in record else None
    return None


def ours(size, batch, folder):
    knobs = {"model.size": sizes[size], "model.own_backward": "true", "precision.mode": "bf16_params",
             "model.pad_vocabulary": "64", "data.dir": folder, "batch.global": batch, "batch.micro": batch,
             "data.tokenizer": "", "memory.find_micro": "false", "planner.learn": "never", "eval.every": "0",
             "schedule.warmup_steps": "10", "train.steps": arguments.steps, "train.log_every": "10",
             "checkpoint.save_last": "false", "checkpoint.final_weights": "false"}
    run = pathlib.Path(folder) / f"run-{size}-{batch}-{time.time()}"
    begin = time.time()
    done = subprocess.run([arguments.lockstep, "train", str(root / "recipes" / "gpt2_124m.yaml"), "--run-dir", str(run)]
                          + [f"{key}={value}" for key, value in knobs.items()] + arguments.set,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"lockstep train ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    with open(run / "metrics.jsonl", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    times = [line["step_seconds"] for line in lines if line["split"] == "train"]
    memory = [word for word in done.stdout.splitlines() if "rank 0" in word]
    return {"ms": 1000 * statistics.median(times[2:]), "first_s": first_finished_step(run, begin),
            "memory": memory[-1].strip() if memory else "", "whole_s": time.time() - begin}


def peer(size, batch, mode):
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=tempfile.mkdtemp())
    done = subprocess.run([sys.executable, arguments.peer, f"{size},{batch},1024,{mode},50304"],
                          capture_output=True, text=True, check=True, env=environment)
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


with tempfile.TemporaryDirectory() as folder:
    write_tokens(folder + "/train.bin", 1 << 20)
    write_tokens(folder + "/val.bin", 1 << 15)
    for case in arguments.cases:
        size, batch, mode = case.split(",")
        own = ours(size, batch, folder)
        tokens = int(batch) * 1.024 / own["ms"] * 1000
        other = peer(size, batch, mode) if arguments.peer else None
        ratio = f"{other['ms'] / own['ms']:.3f} x {mode}; " if other else ""
        print(f"{size}, batch {batch}: {ratio}lockstep {own['ms']:.2f} ms, {tokens:.0f}k tokens/s, "
              f"first step after {own['first_s'] or 0:.2f} s, whole run {own['whole_s']:.1f} s, {own['memory']}", flush=True)
        if other:
            print(f"  peer {other}", flush=True)
