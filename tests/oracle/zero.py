"""Steps of PyTorch's ZeroRedundancyOptimizer and FSDP2 from the same start with the same data, under torchrun.

Arguments: learning rate, weight decay, then files <stage>.safetensors with start, data and our end.
"""
import copy
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.up = torch.nn.Linear(wide, 2 * wide)
        self.down = torch.nn.Linear(2 * wide, wide)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Net(torch.nn.Module):
    def __init__(self, wide, blocks):
        super().__init__()
        self.first = torch.nn.Linear(wide, wide)
        for i in range(blocks):
            self.add_module(f"block{i}", Block(wide))
        self.blocks = blocks

    def forward(self, x):
        h = self.first(x)
        for i in range(self.blocks):
            h = getattr(self, f"block{i}")(h)
        return h


def steps(model, optimizer, data):
    rank, size = dist.get_rank(), dist.get_world_size()
    for x in data:
        share = len(x) // size
        mine = x[rank * share : (rank + 1) * share]
        optimizer.zero_grad()
        # A mean over the samples of this rank; both take the mean over the ranks.
        model(mine).pow(2).sum().div(share).backward()
        optimizer.step()


def zero1(net, data, lr, weight_decay):
    model = DistributedDataParallel(net)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=lr, weight_decay=weight_decay)
    steps(model, optimizer, data)
    return {name: value.detach() for name, value in net.named_parameters()}


def fsdp2(net, data, lr, weight_decay):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for i in range(net.blocks):
        fully_shard(getattr(net, f"block{i}"), mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=weight_decay)
    steps(net, optimizer, data)
    return {name: value.full_tensor() for name, value in net.named_parameters()}


def relative(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


torch.set_num_threads(1)
dist.init_process_group("gloo")
lr, weight_decay = map(float, sys.argv[1:3])
peers = {}
for file in sys.argv[3:]:
    tensors = load_file(file)
    start = {k[6:]: v for k, v in tensors.items() if k.startswith("start.")}
    if not peers:
        net = Net(tensors["x"].shape[-1], sum(k.endswith("up.bias") for k in start))
        net.load_state_dict(start)
        for train in (zero1, fsdp2):
            peers[train.__name__] = train(copy.deepcopy(net), tensors["x"], lr, weight_decay)
    for name, theirs in peers.items():
        worst = max(relative(tensors["end." + key], value) for key, value in theirs.items())
        moved = max(relative(start[key], value) for key, value in theirs.items())
        if dist.get_rank() == 0:
            print(f"{file}: largest relative difference to {name} {worst:.1e}; parameters moved by {moved:.1e}")
        assert worst < 1e-5 and moved > 1e-2
dist.destroy_process_group()
