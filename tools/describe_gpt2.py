#!/usr/bin/env python3
"""Writes the descriptions of the GPT-2 models that ship with the planner.

    tools/describe_gpt2.py lockstep/planner/models

docs/planner.md explains the formula. T tokens, C width, L blocks, H heads, V words:
  parameters  V C + T C + L (12 C^2 + 13 C) + 2 C; the head is the embedding's weight
  flops       a block 24 C^2 T + 2 T^2 C (causal: half of the scores), the head 2 V C T
  kept, half  a block 2 (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4) T C: inputs of both norms, of the four
              products, q, k, v, and of gelu; plus the sums of attention and norms in 32 bits
"""
import json
import pathlib
import re
import sys

VOCABULARY, SEQUENCE = 50257, 1024
TABLE = pathlib.Path(__file__).parent.parent / "lockstep/config/gpt_sizes.h"


def sizes():
    """Name, width, blocks and heads of each, from the table that recipes use."""
    rows = re.findall(r'X\("([^"]+)", "[^"]+", (\d+), (\d+), (\d+)\)', TABLE.read_text())
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


def footprints(half, fp32=None, fixed_half=0):
    return {
        "fp32": {"per_sample_bytes": fp32 if fp32 is not None else 2 * half, "fixed_bytes": 0},
        "half": {"per_sample_bytes": half, "fixed_bytes": fixed_half},
    }


def unit(name, **fields):
    base = {
        "name": name, "count": 1, "num_parameters": 0, "buffer_bytes": 0, "forward_flops": 0,
        "quadratic_flops": 0, "operators": 0, "kept": footprints(0), "num_inputs": 0,
        "num_outputs": 0, "recomputable": False,
    }
    return base | fields


def describe(name, width, blocks, heads):
    t, c, v = SEQUENCE, width, VOCABULARY
    block_parameters = 12 * c * c + 13 * c
    sums = 4 * heads * t + 4 * 4 * t  # of attention; mean and deviation of two norms
    block = unit(
        "block", count=blocks, num_parameters=block_parameters,
        forward_flops=24 * c * c * t + 2 * t * t * c, quadratic_flops=2 * t * t * c,
        operators=14, num_inputs=t * c, num_outputs=t * c, recomputable=True,
        # fixed: the copies of weights in 16 bits that products compute with
        kept=footprints(32 * t * c + sums, 64 * t * c + sums, 2 * block_parameters))
    embedding = unit(
        "embedding", num_parameters=v * c + t * c, operators=3, num_inputs=t,
        num_outputs=t * c, kept=footprints(8 * t, 8 * t))
    # The logits, their logarithms in 32 bits, the norm's input and its output.
    head = unit(
        "head", num_parameters=2 * c, forward_flops=2 * v * c * t, operators=4,
        num_inputs=t * c, num_outputs=v * t,
        kept=footprints(6 * v * t + 4 * t * c, 8 * v * t + 8 * t * c, 2 * v * c))
    return {
        "format": 1, "name": name,
        "source": "tools/describe_gpt2.py: by formula, attention in one kernel, no dropout",
        "sequence": t, "sample_bytes": 8 * (t + 1), "train_samples": 0,
        "backward": footprints(6 * v * t, 8 * v * t),  # gradients of the logits, twice
        "forward": footprints(6 * v * t, 8 * v * t),
        "units": [embedding, block, head],
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, size in sizes().items():
        text = json.dumps(describe(name, *size), indent=2)
        (folder / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
