"""Our plain GPT against transformers' GPT-2: logits, loss and gradients.

usage: gpt.py FILE HEADS

FILE is a safetensors file: our weights ("weight.<name>"), tokens and targets, and what we
computed of them ("logits", "loss", "gradient.<name>").
"""

import sys

import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

# Of the largest element of each tensor, however small that is.
TOLERANCE = 1e-4
FLOOR = 1e-6

tensors = load_file(sys.argv[1])
weights = {k[7:]: v for k, v in tensors.items() if k.startswith("weight.")}
vocabulary, hidden = weights["wte.weight"].shape
layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))
config = GPT2Config(
    vocab_size=vocabulary, n_positions=weights["wpe.weight"].shape[0], n_embd=hidden,
    n_layer=layers, n_head=int(sys.argv[2]), resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(config).float().train()


def is_transposed(name):
    """Their linear layers (Conv1D) hold the transposed weight."""
    return name.endswith(".weight") and (".attn." in name or ".mlp." in name)


own = dict(model.transformer.named_parameters())
assert own.keys() == weights.keys(), own.keys() ^ weights.keys()
with torch.no_grad():
    for name, value in weights.items():
        own[name].copy_(value.t() if is_transposed(name) else value)

logits = model(tensors["tokens"]).logits
loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tensors["targets"].flatten())
loss.backward()


def check(name, ours, theirs):
    largest = theirs.abs().max().item()
    worst = (ours - theirs).abs().max().item() / max(FLOOR, largest)
    if not worst < TOLERANCE:
        sys.exit(f"{name}: differs by {worst} of its largest element, {largest}")


check("logits", tensors["logits"], logits)
check("loss", tensors["loss"], loss)
for name in weights:
    gradient = own[name].grad
    check(name, tensors["gradient." + name], gradient.t() if is_transposed(name) else gradient)
