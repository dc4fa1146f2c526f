"""Reads what `lockstep checkpoint export` made of the small checkpoint of tests/storage.

usage: checkpoint_export.py FILE

FILE is a .safetensors or a .pt file.
"""

import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file


def main():
    if sys.argv[1].endswith(".pt"):
        tensors = torch.load(sys.argv[1], weights_only=True)
    else:
        tensors = load_file(sys.argv[1])
        with safe_open(sys.argv[1], framework="pt") as file:
            assert file.metadata() == {"format": "pt"}, file.metadata()
    assert set(tensors) == {"conv.weight", "fc.weight", "steps"}, set(tensors)
    stored = torch.arange(1.0, 25.0).reshape(2, 2, 2, 3)  # channels last
    assert torch.equal(tensors["conv.weight"], stored.permute(0, 3, 1, 2)), tensors["conv.weight"]
    assert torch.equal(tensors["fc.weight"], torch.arange(101.0, 116.0).reshape(5, 3))
    assert tensors["steps"].shape == ()


main()
