"""The scale of torch.amp.GradScaler before each step of a sequence of overflows.

usage: loss_scale.py INITIAL INTERVAL FLAGS SCALES
"""
import sys

import torch

initial, interval, flags, scales = sys.argv[1:]
scaler = torch.amp.GradScaler("cpu", init_scale=float(initial), growth_interval=int(interval))
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], lr=0.0)
theirs = []
for flag in flags:
    theirs.append(scaler.scale(torch.ones(())).item())
    parameter.grad = torch.full((1,), float("inf") if flag == "1" else 1.0)
    scaler.step(optimizer)
    scaler.update()
ours = [float(scale) for scale in scales.split(",")]
assert ours == theirs, list(zip(ours, theirs))
print(f"{len(ours)} scales are the same, from {min(ours)} to {max(ours)}")
