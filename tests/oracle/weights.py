"""Weights between PyTorch and us, by name.

usage: weights.py train FOLDER   trains a cnn and an mlp for some steps; FOLDER/<model>.pt and
                                 FOLDER/<model>.safetensors have the weights, FOLDER/<model>_shown.safetensors
                                 an input and what the model makes of it
       weights.py read FILE SHOWN MODEL
                                 FILE, which we exported, makes of the input in SHOWN what we made of it
"""
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from network import Cnn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden1 = nn.Linear(28 * 28, 256)
        self.hidden2 = nn.Linear(256, 256)
        self.output = nn.Linear(256, 10)

    def forward(self, x):
        return self.output(F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1))))))


MODELS = {"cnn": Cnn, "mlp": Mlp}


def train(folder):
    torch.manual_seed(3)
    x, y = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))
    for name, make in MODELS.items():
        net = make()
        before = {key: value.clone() for key, value in net.state_dict().items()}
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        state = net.state_dict()
        assert all(not torch.equal(before[key], state[key]) for key in state)
        torch.save({"model": state, "optimizer": optimizer.state_dict()}, folder / f"{name}.pt")
        save_file(state, folder / f"{name}.safetensors")
        with torch.no_grad():
            save_file({"x": x, "logits": net(x)}, folder / f"{name}_shown.safetensors")


def read(file, shown, model):
    net = MODELS[model]()
    net.load_state_dict(load_file(file))  # strict: no name is missing, none is left
    shown = load_file(shown)
    with torch.no_grad():
        worst = (net(shown["x"]) - shown["logits"]).abs().max().item()
    print(f"{model}: largest difference {worst:.1e}")
    assert worst < 1e-6


if sys.argv[1] == "train":
    train(Path(sys.argv[2]))
else:
    read(*sys.argv[2:])
