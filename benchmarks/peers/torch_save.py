"""A blocking torch.save of a model and its AdamW, as a PyTorch user writes it.

usage: torch_save.py FOLDER HIDDEN LAYERS ROUNDS

The model is our `mlp` for 28 x 28 images. One JSON line: the bytes, and the seconds of each round.
"""
import json
import os
import sys
import time

import torch
import torch.nn as nn

folder, hidden, layers, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
parts, width = [], 28 * 28
for _ in range(layers):
    parts += [nn.Linear(width, hidden), nn.ReLU()]
    width = hidden
model = nn.Sequential(*parts, nn.Linear(width, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
nn.functional.cross_entropy(model(torch.randn(2, 28 * 28)), torch.tensor([1, 2])).backward()
optimizer.step()
path = os.path.join(folder, "torch.pt")
seconds = []
for _ in range(rounds + 1):
    begin = time.monotonic()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    seconds.append(time.monotonic() - begin)
    size = os.path.getsize(path)
    os.unlink(path)
print(json.dumps({"bytes": size, "seconds": seconds[1:]}))  # the first one warms up
