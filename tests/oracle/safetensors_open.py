"""Opens the two files of the small checkpoint of tests/storage with the stock library.

usage: safetensors_open.py RANK_0 RANK_1
"""

import sys

import torch
from safetensors import safe_open


def read(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def main():
    first, second = read(sys.argv[1]), read(sys.argv[2])
    weight = torch.cat([first["model.fc.weight[0:7]"], second["model.fc.weight[7:15]"]])
    assert torch.equal(weight, torch.arange(101.0, 116.0)), weight
    # Stored channels last: (0, 2, 3, 1) of a tensor of shape (2, 3, 2, 2).
    conv = torch.cat([first["model.conv.weight[0:12]"], second["model.conv.weight[12:24]"]])
    assert torch.equal(conv, torch.arange(1.0, 25.0)), conv
    assert first["optimizer.empty"].shape == (0, 3)
    assert second["model.steps"].shape == () and second["model.steps"].dtype == torch.int64
    assert torch.equal(torch.cat([first["rng.rank_0[0:5]"], second["rng.rank_0[5:11]"]]),
                       torch.full((11,), 2, dtype=torch.uint8))


main()
