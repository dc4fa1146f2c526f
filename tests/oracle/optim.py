"""Twenty steps of PyTorch's own optimizer from the same start with the same gradients.

usage: optim.py FILE VARIANTS, where VARIANTS is a list in JSON. Lion, which PyTorch has not, is a few
lines in float64. A range of the flat buffer becomes a parameter group.
"""
import json
import sys

import torch
from safetensors.torch import load_file

ALLOWED = {torch.float32: 1e-6, torch.float64: 1e-13}  # a few roundings a step, 20 steps


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas})

    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                update = (beta1 * mean + (1 - beta1) * p.grad).sign()
                p.data = p.data * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * update
                self.state[p]["mean"] = beta2 * mean + (1 - beta2) * p.grad


def make(options, groups):
    name, lr = options["name"], options["lr"]
    betas = (options["beta1"], options["beta2"])
    if name == "lion":
        return Lion(groups, lr, betas)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=options["momentum"],
                               nesterov=options["nesterov"])
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(groups, lr=lr, betas=betas, eps=options["eps"])


def clipped(options, gradient):
    gradient = gradient * options["gradient_scale"]
    if options["clip_norm"] > 0:
        whole = torch.nn.Parameter(torch.zeros_like(gradient))
        whole.grad = gradient
        torch.nn.utils.clip_grad_norm_([whole], options["clip_norm"])
    if options["clip_value"] > 0:
        gradient.clamp_(-options["clip_value"], options["clip_value"])
    return gradient


def check(options, start, gradients, end):
    ranges = options["ranges"]  # [begin, end, lr_scale, weight_decay]
    exact = options["name"] == "lion" or start.dtype == torch.float64
    dtype = torch.float64 if exact else torch.float32
    parameters = [torch.nn.Parameter(start[r[0]:r[1]].to(dtype)) for r in ranges]
    optimizer = make(options, [{"params": [p], "weight_decay": r[3]}
                               for p, r in zip(parameters, ranges)])
    # Rounding errors are as large as the weight was on its way, though it may end near zero.
    largest = [p.detach().abs() for p in parameters]
    for i, gradient in enumerate(gradients):
        gradient = clipped(options, gradient.to(dtype))
        for p, group, r in zip(parameters, optimizer.param_groups, ranges):
            p.grad = gradient[r[0]:r[1]].clone()
            group["lr"] = options["lr"] * r[2] * (1 - 0.03 * i)
        optimizer.step()
        largest = [torch.maximum(a, p.detach().abs()) for a, p in zip(largest, parameters)]
    worst = max(((end[r[0]:r[1]].to(dtype) - p.detach()).abs() / size).max().item()
                for p, r, size in zip(parameters, ranges, largest))
    print(f"{options['name']} {end.dtype}: largest relative difference after 20 steps {worst:.1e}")
    return worst < ALLOWED[end.dtype]


tensors = load_file(sys.argv[1])
results = [check(options, tensors[f"start.{i}"], tensors[f"gradients.{i}"], tensors[f"end.{i}"])
           for i, options in enumerate(json.loads(sys.argv[2]))]
assert results and all(results), results
