"""PyTorch's own way of keeping activations in the host's memory, beside a plain step.

usage: offload.py MODEL BATCH SIDE

One JSON line for each: the median step in bf16, channels last, and the peak of the memory.
"""

import json
import statistics
import sys
from contextlib import nullcontext

import torch
import torchvision
from torch.nn import functional


def measure(name, batch, side, hooks):
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = getattr(torchvision.models, name)(num_classes=10).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    x = torch.randn(batch, 3, side, side, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,), device="cuda")

    def step():
        with hooks(), torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def main():
    name, batch, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    on_host = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)  # noqa: E731
    for what, hooks in (("kept", nullcontext), ("save_on_cpu", on_host)):
        torch.cuda.empty_cache()
        ms, allocated, reserved = measure(name, batch, side, hooks)
        print(json.dumps({"peer": what, "ms": round(ms, 1), "samples_s": round(1e3 * batch / ms),
                          "peak_allocated_gib": round(allocated / 2**30, 2),
                          "peak_reserved_gib": round(reserved / 2**30, 2)}), flush=True)


main()
