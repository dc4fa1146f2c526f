"""The learning rates of PyTorch's schedulers, step by step: usage: schedule.py FILE

A line of the file is one schedule of ours in JSON, with the rates that it gave.
"""
import json
import math
import sys
import warnings

import torch
from torch.optim import lr_scheduler as theirs

warnings.filterwarnings("ignore")  # no optimizer steps here, on purpose


def curve(c, optimizer):
    left = c["steps"] - c["warmup"]
    name = c["name"]
    if name == "constant":
        return theirs.ConstantLR(optimizer, 1.0)
    if name == "linear":
        return theirs.LinearLR(optimizer, 1.0, c["final_ratio"], total_iters=left)
    if name == "cosine":
        return theirs.CosineAnnealingLR(optimizer, left, eta_min=c["final_ratio"])
    if name == "polynomial":
        return theirs.PolynomialLR(optimizer, total_iters=left, power=c["power"])
    if name == "step":
        return theirs.StepLR(optimizer, c["step_size"], c["gamma"])
    if name == "multi_step":
        return theirs.MultiStepLR(optimizer, c["milestones"], c["gamma"])
    if name == "exponential":
        return theirs.ExponentialLR(optimizer, c["gamma"])
    div = 1 / c["start_ratio"]
    return theirs.OneCycleLR(optimizer, 1.0, total_steps=left, pct_start=c["rise"],
                             div_factor=div, final_div_factor=c["start_ratio"] / c["final_ratio"])


def rates(c):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    if c["name"] == "plateau":
        scheduler = theirs.ReduceLROnPlateau(
            optimizer, mode=c["goal"], factor=c["gamma"], patience=c["patience"],
            threshold=c["threshold"], cooldown=c["cooldown"], min_lr=c["final_ratio"])
        for i in range(c["steps"]):
            yield optimizer.param_groups[0]["lr"]
            scheduler.step(1 + math.cos(0.2 * i) / (1 + 0.1 * i))
        return
    # A warm-up of theirs, then a fresh curve: what SequentialLR does, without its detours.
    if c["warmup"] > 0:
        scheduler = theirs.LinearLR(optimizer, 1 / (c["warmup"] + 1), 1.0, total_iters=c["warmup"])
        for _ in range(c["warmup"]):
            yield optimizer.param_groups[0]["lr"]
            scheduler.step()
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = curve(c, optimizer)
    for i in range(c["warmup"], c["steps"]):
        yield optimizer.param_groups[0]["lr"]
        if i + 1 < c["steps"]:
            scheduler.step()


for line in open(sys.argv[1]):
    config = json.loads(line)
    expected = list(rates(config))
    assert len(expected) == len(config["values"])
    # Theirs multiply step by step and round each time; relative to the largest rate.
    worst = max(abs(a - b) for a, b in zip(expected, config["values"]))
    print(f"{config['name']}, warm-up {config['warmup']}: largest difference {worst:.1e}")
    assert worst < 1e-12, (expected, config["values"])
