"""The CNN in PyTorch: same weights, same input, so the same logits and gradients."""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from network import Cnn

tensors = load_file(sys.argv[1])
net = Cnn()
net.load_state_dict({name: tensors[name] for name in net.state_dict()})
logits = net(tensors["x"])
F.cross_entropy(logits, tensors["y"]).backward()


def check(name, ours, theirs):
    # float32 sums of up to 3136 products in another order.
    worst = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(f"{name}: largest difference relative to the largest value {worst:.1e}")
    assert worst < 1e-5, name


check("logits", tensors["logits"], logits)
for name, parameter in net.named_parameters():
    check(name, tensors["grad." + name], parameter.grad)
