"""The same training step under PyTorch's DDP over Gloo on CPUs, one thread a rank: fixed batch,
fused AdamW, gradients set to none. Alone or under torchrun; rank 0 prints one JSON line.

    ddp.py cnn|mlp BATCH STEPS ddp|ddp_view|zero1|fsdp2

zero1 is DDP with ZeroRedundancyOptimizer; fsdp2 shards every Linear (fully_shard), whose
parameters a fused AdamW does not take.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracle"))
from network import Cnn

model, batch, steps, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
torch.set_num_threads(1)
torch.manual_seed(0)
if model == "cnn":
    net, x = Cnn(), torch.randn(batch, 1, 28, 28)
else:
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    net, x = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 10)), torch.randn(batch, 1024)
if ranks > 1:
    torch.distributed.init_process_group("gloo")
if ranks > 1 and how == "fsdp2":
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in net.modules():
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
elif ranks > 1:
    net = DistributedDataParallel(net, gradient_as_bucket_view=how != "ddp")
if ranks > 1 and how == "zero1":
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-3, fused=True)
else:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=how != "fsdp2")
y = torch.randint(0, 10, (batch,))


def step():
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(4):
    step()
times, cpu = [], time.process_time()
for _ in range(steps):
    begin = time.perf_counter()
    step()
    times.append(time.perf_counter() - begin)
cpu = (time.process_time() - cpu) / steps
median = sorted(times)[len(times) // 2]
if rank == 0:
    print(json.dumps({"who": "pytorch " + how, "model": model, "ranks": ranks, "ms": 1e3 * median,
                      "least_ms": 1e3 * min(times), "cpu_ms": 1e3 * cpu,
                      "samples_s": ranks * batch / median}))
if ranks > 1:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # Threads that ZeroRedundancyOptimizer leaves end the interpreter by an abort.
    sys.stdout.flush()
    os._exit(0)
