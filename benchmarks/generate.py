"""Tokens a second of `lockstep generate` and of transformers' generate(), greedy with kept keys
and values, in one run on the same weights and prompts.

usage: generate.py LOCKSTEP TOKENIZER [--layers 12 --heads 12 --hidden 768] [--new 128]
                   [--batches 1,8] [--device cpu|cuda] [--dtype fp32|bf16] [--repeat 3]

LOCKSTEP is the program, TOKENIZER a folder with GPT-2's vocabulary (scripts/get_gpt2_vocab.sh).
The weights are random: speed does not depend on them. Both sides have loaded them when the clock
starts; the first of the repeats warms up.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

PROMPT = [464, 3290, 318, 257, 1049, 4451]  # tokens; the text is the tokenizer's to know


def theirs(model, batch, new):
    inputs = torch.tensor([PROMPT] * batch, device=model.device)
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=new,
            min_new_tokens=new, use_cache=True, pad_token_id=0)
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return batch * new / (time.perf_counter() - begin), out[:, len(PROMPT):].tolist()


def ours(arguments, folder, prompt, batch):
    """One process a measurement: it says itself how long it generated."""
    prompts = Path(folder) / "prompts.txt"
    prompts.write_text((prompt + "\n") * batch)
    words = [arguments.lockstep, "generate", folder, "--prompts", str(prompts), "--temperature", "0",
             "--max-tokens", str(arguments.new), "--tokenizer", arguments.tokenizer, "--device",
             arguments.device, "--dtype", arguments.dtype, "--json"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return sum(line["tokens"] for line in lines) / lines[0]["seconds"], [line["text"] for line in lines]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("tokenizer")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    config = GPT2Config(n_embd=arguments.hidden, n_layer=arguments.layers, n_head=arguments.heads)
    model = GPT2LMHeadModel(config).eval()
    # No end of a text comes up: all texts are as long as asked for.
    with torch.no_grad():
        model.transformer.wte.weight[50256].zero_()
    model.generation_config.eos_token_id = None
    words = subprocess.run([arguments.lockstep, "tokenizer", "decode", arguments.tokenizer,
                            *map(str, PROMPT)], check=True, capture_output=True, text=True)
    prompt = words.stdout.rstrip("\n")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        model.to(arguments.device, dtype[arguments.dtype])
        for batch in map(int, arguments.batches.split(",")):
            pairs = []
            for _ in range(arguments.repeat + 1):
                speed, _ = theirs(model, batch, arguments.new)
                own, _ = ours(arguments, folder, prompt, batch)
                pairs.append((own, speed))
            ratios = [own / speed for own, speed in pairs[1:]]
            print(f"batch {batch}: {statistics.median(ratios):.2f} x transformers "
                  f"({statistics.median(own for own, _ in pairs[1:]):,.0f} and "
                  f"{statistics.median(speed for _, speed in pairs[1:]):,.0f} tokens/s)", flush=True)


main()
