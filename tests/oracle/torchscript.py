"""Writes a TorchScript model as PyTorch's users do.

usage: torchscript.py KIND FILE [CHECK]

KIND: one (a tensor in, a tensor out), two (two in, two out), named (a dictionary out),
plain (without buffers), shared (a layer that has two names), slow (in one of its passes),
traced (by an example instead of its code), saver, reader and loaded_saver (open files by name).
CHECK is a safetensors file: "input" and "output", what we computed of the saved weights.
"""

import sys
from typing import Dict, Tuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4 * 26 * 26, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class Plain(nn.Module):
    """Without running statistics: batches may be cut as anybody likes."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        self.head = nn.Linear(4 * 26 * 26, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(6, 3)
        self.right = nn.Linear(4, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, a: Tensor, b: Tensor) -> Tuple[Tensor, Tensor]:
        return self.dropout(self.left(a)), self.right(b)


class NamedOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        y = self.linear(x)
        return {"logits": y, "score": y.sum(1)}


class SharedLayer(nn.Module):
    """One layer under two names."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(28, 28)
        self.b = self.a
        self.head = nn.Linear(28 * 28, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x).relu()).relu().flatten(1))


class SlowOnce(nn.Module):
    """Its passes take tenths of a second, the twelfth takes seconds; it computes all the while."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(28 * 28, 10)
        self.register_buffer("passes", torch.zeros([], dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
        y = torch.ones(400, 400)
        for _ in range(900 if int(self.passes) == 12 and self.training else 60):
            y = torch.tanh(y @ y)
        return self.head(x.flatten(1))


class Traced(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(28 * 28, 10))


class Saver(nn.Module):
    """Writes a file beside its own in each pass."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(28 * 28, 10)
        self.target = path + ".written"

    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, self.target)
        return self.head(x.flatten(1))


class Reader(nn.Module):
    """Reads its own file in each pass, and would write to it."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(28 * 28, 10)
        self.target = path

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1)) + torch.from_file(self.target, True, 10)


class LoadedSaver(nn.Module):
    """Writes a file beside its own as soon as it is loaded."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(28 * 28, 10)
        self.target = path + ".written"

    @torch.jit.export
    def __getstate__(self) -> Tuple[str, bool]:
        return self.target, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[str, bool]):
        self.target = state[0]
        self.training = state[1]
        torch.save(torch.zeros(1), self.target)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10]


KINDS = {"saver": Saver, "reader": Reader, "loaded_saver": LoadedSaver, "traced": Traced, "one": One, "plain": Plain, "shared": SharedLayer, "slow": SlowOnce, "two": Two, "named": NamedOutputs}

kind, path = sys.argv[1:3]
if len(sys.argv) == 3:
    torch.manual_seed(3)
    made = KINDS[kind]()
    example = torch.zeros(2, 1, 28, 28)
    torch.jit.save(torch.jit.trace(made, example) if kind == "traced" else torch.jit.script(made), path)
    sys.exit()
tensors = load_file(sys.argv[3])
model = torch.jit.load(path).eval()
worst = (model(tensors["input"]) - tensors["output"]).abs().max().item()
if not worst < 1e-5:
    sys.exit(f"the output differs by {worst}")
