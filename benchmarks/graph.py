#!/usr/bin/env python3
"""Steps that CUDA graphs hold against the same steps launched kernel by kernel.

    benchmarks/graph.py [--lockstep build-cuda/bin/lockstep] [--pairs 3] [CASE ...]

Both sides are whole runs of `lockstep train` that differ in train.graph only. What counts is
the median time of a step after the first ones, of windows of 20 steps.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import harness

root = pathlib.Path(__file__).resolve().parents[1]
images = {"data.name": "synthetic", "data.train_samples": "0", "data.eval_samples": "256",
          "memory.find_micro": "false", "eval.every": "0", "train.log_every": "20",
          "checkpoint.save_last": "false", "checkpoint.final_weights": "false"}
cases = {
    "cnn, 28 x 28, batch 128, bf16": {
        "model.name": "cnn", "data.shape": "[1,28,28]", "batch.global": "128", "precision.mode": "bf16",
        "data.synthetic_samples": "12800", "train.steps": "400"},
    "cnn, 28 x 28, batch 128, fp16 (steps may be skipped)": {
        "model.name": "cnn", "data.shape": "[1,28,28]", "batch.global": "128", "precision.mode": "fp16",
        "data.synthetic_samples": "12800", "train.steps": "400"},
    "resnet18, 32 x 32, batch 128, bf16": {
        "model.name": "resnet18", "data.shape": "[3,32,32]", "batch.global": "128", "precision.mode": "bf16",
        "data.synthetic_samples": "12800", "train.steps": "400"},
    "resnet50, 224 x 224, batch 256, bf16": {
        "model.name": "resnet50", "data.shape": "[3,224,224]", "data.classes": "1000", "batch.global": "256",
        "precision.mode": "bf16", "data.synthetic_samples": "2048", "train.steps": "120"},
}
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--lockstep", default=str(root / "build-cuda" / "bin" / "lockstep"))
parser.add_argument("--pairs", type=int, default=3)
parser.add_argument("cases", nargs="*", default=list(cases))
arguments = parser.parse_args()


def step_seconds(case, graph):
    with tempfile.TemporaryDirectory() as folder:
        knobs = {**images, **cases[case], "train.graph": graph}
        subprocess.run([arguments.lockstep, "train", str(root / "recipes" / "fashion_mnist_quick.yaml"),
                        "--run-dir", folder + "/run"] + [f"{k}={v}" for k, v in knobs.items()],
                       check=True, capture_output=True)
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        times = [line["step_seconds"] for line in lines if line["split"] == "train"]
        return 1000 * statistics.median(times[3:])


for case in arguments.cases:
    harness.compare(f"{case}: ms of a step", arguments.pairs, lambda: step_seconds(case, "on"),
                    lambda: step_seconds(case, "off"), "kernel by kernel", higher_is_better=False)
