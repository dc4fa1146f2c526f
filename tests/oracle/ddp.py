"""Steps of PyTorch's DistributedDataParallel from the same start with the same data, under torchrun.

Arguments: learning rate, weight decay, momentum, then files <net>.<optimizer>.safetensors with start, data and end.
"""
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(12, 32)
        self.two = torch.nn.Linear(32, 32)
        self.three = torch.nn.Linear(32, 4)

    def forward(self, x):
        return self.three(torch.tanh(self.two(torch.tanh(self.one(x.flatten(1))))))


class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Conv2d(3, 8, 2)
        self.two = torch.nn.Conv2d(8, 16, 1)
        self.three = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.three(torch.relu(self.two(torch.relu(self.one(x)))).flatten(1))


def train(net, optimizer, tensors):
    model = DistributedDataParallel(net)
    rank, size = dist.get_rank(), dist.get_world_size()
    for x, y in zip(tensors["x"], tensors["y"]):
        share = len(x) // size
        mine = slice(rank * share, (rank + 1) * share)
        optimizer.zero_grad()
        # A mean over the samples of this rank; DDP takes the mean over the ranks.
        ((model(x[mine]) - y[mine]) ** 2).sum().div(share).backward()
        optimizer.step()


def check(path, lr, weight_decay, momentum):
    kind, name = pathlib.Path(path).name.split(".")[:2]
    tensors = load_file(path)
    net = Mlp() if kind == "mlp" else ConvNet()
    net.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("start.")})
    if name == "adamw":
        optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=weight_decay)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, weight_decay=weight_decay, momentum=momentum)
    train(net, optimizer, tensors)
    if dist.get_rank() != 0:
        return
    worst = moved = 0
    for key, theirs in net.state_dict().items():
        worst = max(worst, ((tensors["end." + key] - theirs).norm() / theirs.norm()).item())
        moved = max(moved, ((tensors["start." + key] - theirs).norm() / theirs.norm()).item())
    print(f"{kind}.{name}: largest relative difference of a parameter {worst:.1e}; it moved by {moved:.1e}")
    assert worst < 1e-6 and moved > 1e-2


torch.set_num_threads(1)
dist.init_process_group("gloo")
for file in sys.argv[4:]:
    check(file, *map(float, sys.argv[1:4]))
dist.destroy_process_group()
