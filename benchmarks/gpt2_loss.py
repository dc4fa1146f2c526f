#!/usr/bin/env python3
"""Does the gpt's own pass in bf16 learn as PyTorch does? The same weights, tokens and order, 200 steps, step by step.

    benchmarks/gpt2_loss.py TOKENS [--lockstep build-cuda/bin/lockstep] [--steps 200] [--batch 4] [--lr 3e-4]

TOKENS is a file of 16-bit tokens, the training text. PyTorch trains with bf16 autocast (float weights), AdamW and
clipping. Our run is made twice, to see whether its losses repeat to the bit.
"""
import argparse
import array
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("tokens")
parser.add_argument("--lockstep", default=str(root / "build-cuda" / "bin" / "lockstep"))
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--lr", type=float, default=3e-4)
parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE")
arguments = parser.parse_args()
layers, width, heads, vocabulary, length = 12, 768, 12, 50257, 1024
warmup, betas, decay = 40, (0.9, 0.95), 0.1


def initial_weights():
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape, std=0.02: torch.randn(*shape, generator=generator) * std
    small = 0.02 / (2 * layers) ** 0.5
    weights = {"wte.weight": draw(vocabulary, width), "wpe.weight": draw(length, width)}
    for i in range(layers):
        for name, shape, std in (("attn.c_attn", (3 * width, width), 0.02), ("attn.c_proj", (width, width), small),
                                 ("mlp.c_fc", (4 * width, width), 0.02), ("mlp.c_proj", (width, 4 * width), small)):
            weights[f"h.{i}.{name}.weight"] = draw(*shape, std=std)
            weights[f"h.{i}.{name}.bias"] = torch.zeros(shape[0])
        for name in ("ln_1", "ln_2"):
            weights[f"h.{i}.{name}.weight"], weights[f"h.{i}.{name}.bias"] = torch.ones(width), torch.zeros(width)
    weights["ln_f.weight"], weights["ln_f.bias"] = torch.ones(width), torch.zeros(width)
    return weights


def logits_of(p, x):
    batch = x.shape[0]
    h = p["wte.weight"][x] + p["wpe.weight"][:length]
    norm = lambda h, name: F.layer_norm(h, (width,), p[name + ".weight"], p[name + ".bias"])
    linear = lambda h, name: F.linear(h, p[name + ".weight"], p[name + ".bias"])
    for i in range(layers):
        parts = linear(norm(h, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(width, 2)
        q, k, v = [part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts]
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        h = h + linear(seen, f"h.{i}.attn.c_proj")
        h = h + linear(F.gelu(linear(norm(h, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh"), f"h.{i}.mlp.c_proj")
    return F.linear(norm(h, "ln_f"), p["wte.weight"])


def pytorch(weights, tokens):
    p = {name: value.cuda().requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(p.values(), lr=arguments.lr, betas=betas, weight_decay=decay, fused=True)
    losses = []
    for step in range(arguments.steps):
        rows = [tokens[i * length:i * length + length + 1] for i in range(step * arguments.batch, (step + 1) * arguments.batch)]
        rows = torch.stack(rows).cuda()
        for group in optimizer.param_groups:
            group["lr"] = arguments.lr * min(1, (step + 1) / warmup)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(logits_of(p, rows[:, :-1]).flatten(0, 1).float(), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return torch.stack(losses).cpu().tolist()


def lockstep(folder, name):
    knobs = {"model.weights": folder + "/initial.safetensors", "model.own_backward": "true",
             "precision.mode": "bf16_params", "model.pad_vocabulary": "64", "data.dir": folder, "data.tokenizer": "",
             "data.shuffle": "false", "batch.global": arguments.batch, "batch.micro": arguments.batch,
             "memory.find_micro": "false", "planner.learn": "never", "eval.every": "0", "optim.lr": arguments.lr, "optim.no_decay": "none",
             "schedule.name": "constant", "schedule.warmup_steps": warmup - 1,  # ours rises by 1 / (steps + 1)
             "train.steps": arguments.steps,
             "train.log_every": "1", "checkpoint.save_last": "false", "checkpoint.final_weights": "false"}
    done = subprocess.run([arguments.lockstep, "train", str(root / "recipes" / "gpt2_124m.yaml"), "--run-dir", f"{folder}/{name}"]
                          + [f"{key}={value}" for key, value in knobs.items()] + arguments.set,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"lockstep train ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    with open(f"{folder}/{name}/metrics.jsonl", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line["loss"] for line in lines if line["split"] == "train"]


numbers = array.array("H")
with open(arguments.tokens, "rb") as file:
    numbers.frombytes(file.read())
with tempfile.TemporaryDirectory() as folder:
    for name in ("train.bin", "val.bin"):
        with open(f"{folder}/{name}", "wb") as file:
            array.array("i", [20240520, 1, len(numbers)] + [0] * 253).tofile(file)
            numbers.tofile(file)
    initial = initial_weights()
    save_file(initial, folder + "/initial.safetensors")
    own, again = lockstep(folder, "own"), lockstep(folder, "again")
    theirs = pytorch(initial, torch.tensor(numbers, dtype=torch.int64))
    apart = [abs(a - b) / b for a, b in zip(own, theirs)]
    worst = max(range(len(apart)), key=apart.__getitem__)
    print(f"{len(own)} steps, batch {arguments.batch}, lr {arguments.lr}: at most {100 * apart[worst]:.3f} % from PyTorch "
          f"(step {worst + 1}), the last {100 * apart[-1]:.3f} %; a second run is "
          f"{'the same to the bit' if own == again else 'NOT the same'}")
    for step in sorted({1, 2, 5, 10, 20, 40, 100, len(own)}):
        print(f"  step {step:4d}: lockstep {own[step - 1]:.5f}, PyTorch {theirs[step - 1]:.5f}")
