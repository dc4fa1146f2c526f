"""Twenty steps of PyTorch's own optimizer from the same start with the same gradients."""
import sys

import torch
from safetensors.torch import load_file

path, name, lr, weight_decay, momentum, nesterov = sys.argv[1:]
tensors = load_file(path)
parameter = torch.nn.Parameter(tensors["start"].clone())
if name == "adamw":
    optimizer = torch.optim.AdamW([parameter], lr=float(lr), weight_decay=float(weight_decay))
else:
    optimizer = torch.optim.SGD([parameter], lr=float(lr), weight_decay=float(weight_decay),
                                momentum=float(momentum), nesterov=nesterov == "1")
for i, gradient in enumerate(tensors["gradients"]):
    for group in optimizer.param_groups:
        group["lr"] = float(lr) * (1 - 0.03 * i)
    parameter.grad = gradient.clone()
    optimizer.step()
theirs = parameter.detach()
scale = theirs.abs().clamp_min(1e-3)  # parameters that cross zero have no relative error
worst = ((tensors["end"] - theirs).abs() / scale).max().item()
print(f"{name}: largest relative difference after 20 steps {worst:.1e}")
assert worst < 1e-6
