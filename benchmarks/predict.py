#!/usr/bin/env python3
"""How right predictions are: calibrated with one run, held against others.

    benchmarks/predict.py [--device cpu|cuda] [--process] [--steps 40] [--markdown FILE]

For each model one run is made and remembered; then another micro-batch, another width or
depth and another number of ranks are predicted with what it taught, and run. Nothing is
learnt from those. Printed: predicted and measured memory of a rank and time of a step.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--process", action="store_true",
                    help="on a CPU: memory of the process, not of tensors")
parser.add_argument("--markdown")
arguments = parser.parse_args()

COMMON = ["data.name=synthetic", "data.synthetic_samples=8192", "data.eval_samples=64", "eval.every=0",
          "checkpoint.final_weights=false", f"parallel.device={arguments.device}",
          f"train.steps={arguments.steps}", "train.log_every=5", "memory.find_micro=false"]

if arguments.device == "cpu" and not arguments.process:
    COMMON.append("memory.host_limit=64GiB")  # counts tensors

if arguments.device == "cpu":
    CASES = {
        "mlp": (["data.shape=[1, 28, 28]", "model.layers=4", "model.hidden=2048", "batch.global=256"], {
            "micro-batch": ["batch.global=1024"],
            "width": ["model.hidden=3072"],
            "2 ranks": ["batch.global=512", "parallel.ranks=2", "parallel.threads=1"]}),
        "cnn": (["data.shape=[1, 28, 28]", "model.hidden=1024", "batch.global=256"], {
            "micro-batch": ["batch.global=1024"],
            "width": ["model.hidden=4096"],
            "2 ranks": ["batch.global=512", "parallel.ranks=2", "parallel.threads=1"]}),
        "resnet9": (["data.shape=[3, 32, 32]", "batch.global=16"], {
            "micro-batch": ["batch.global=48"],
            "recompute": ["memory.recompute_every=1"],
            "2 ranks": ["batch.global=32", "parallel.ranks=2", "parallel.threads=1"]}),
    }
else:
    CASES = {
        "mlp": (["data.shape=[1, 28, 28]", "model.layers=8", "model.hidden=8192", "batch.global=2048"], {
            "micro-batch": ["batch.global=8192"],
            "width": ["model.hidden=12288"]}),
        "resnet18": (["data.shape=[3, 32, 32]", "batch.global=256"], {
            "micro-batch": ["batch.global=1024"],
            "recompute": ["batch.global=1024", "memory.recompute_every=1"],
            "fp32": ["precision.mode=fp32"]}),
        "resnet50": (["data.shape=[3, 224, 224]", "data.classes=1000", "batch.global=64"], {
            "micro-batch": ["batch.global=256"],
            "recompute": ["batch.global=256", "memory.recompute_every=1"]}),
    }


def train(name, state, folder, knobs):
    recipe = folder / "recipe.yaml"
    recipe.write_text("run: {seed: 1}\n")
    directory = folder / name
    command = [root / "build/bin/lockstep", "train", recipe, "--run-dir", directory, *COMMON, *knobs]
    done = subprocess.run(command, env=os.environ | {"XDG_STATE_HOME": str(state)},
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stderr}")
    prediction = json.loads((directory / "run.json").read_text())["prediction"]
    memory, step = prediction["memory_bytes"], prediction["step_seconds"]
    return {"memory_predicted_bytes": memory["predicted"], "memory_measured_bytes": memory["measured"],
            "step_predicted_seconds": step["predicted"], "step_measured_seconds": step["measured"]}


def row(model, what, p):
    def error(predicted, measured):
        return f"{100 * (predicted / measured - 1):+.1f} %"
    mib = 1 << 20
    return [model, what, f"{p['memory_predicted_bytes'] / mib:.0f}", f"{p['memory_measured_bytes'] / mib:.0f}",
            error(p["memory_predicted_bytes"], p["memory_measured_bytes"]),
            f"{1e3 * p['step_predicted_seconds']:.1f}", f"{1e3 * p['step_measured_seconds']:.1f}",
            error(p["step_predicted_seconds"], p["step_measured_seconds"])]


def main():
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for model, (base, others) in CASES.items():
            base = [f"model.name={model}", *base]
            learnt = folder / f"state_{model}"
            rows.append(row(model, "first guess", train(f"{model}_0", learnt, folder, base)))
            for i, (what, knobs) in enumerate(({"the same again": []} | others).items(), 1):
                state = folder / f"state_{model}_{i}"
                shutil.copytree(learnt, state)
                changed = {knob.split("=")[0] for knob in knobs}
                kept = [knob for knob in base if knob.split("=")[0] not in changed]
                rows.append(row(model, what, train(f"{model}_{i}", state, folder, kept + knobs)))
    head = ["model", "what", "memory predicted (MiB)", "measured", "error", "step predicted (ms)", "measured", "error"]
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    text = "\n".join(lines)
    print(text)
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text(text + "\n")


if __name__ == "__main__":
    main()
