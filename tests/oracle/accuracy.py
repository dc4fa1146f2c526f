"""PyTorch evaluates the weights that Lockstep saved on the first test images."""
import gzip
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from network import Cnn

weights, count, accuracy, loss = sys.argv[1], int(float(sys.argv[2])), float(sys.argv[3]), float(sys.argv[4])
folder = "/usr/share/datasets/fashion-mnist/"
with gzip.open(folder + "t10k-images-idx3-ubyte.gz") as file:
    images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:count].copy()
with gzip.open(folder + "t10k-labels-idx1-ubyte.gz") as file:
    labels = np.frombuffer(file.read(), np.uint8, offset=8)[:count].astype(np.int64)

net = Cnn()
net.load_state_dict(load_file(weights))
with torch.no_grad():
    logits = net((torch.from_numpy(images).float() / 255 - 0.2860) / 0.3530)
targets = torch.from_numpy(labels)
theirs = (logits.argmax(1) == targets).float().mean().item()
their_loss = F.cross_entropy(logits, targets).item()
print(f"accuracy: Lockstep {accuracy}, PyTorch {theirs}; loss: {loss}, {their_loss}")
# One sample may sit on the border between two classes.
assert abs(theirs - accuracy) <= 1.5 / count
assert abs(their_loss - loss) < 1e-4
