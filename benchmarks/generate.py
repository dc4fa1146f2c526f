"""Tokens a second of `lockstep generate` beside another program, greedy with kept keys and
values, in one run on the same weights and prompts.

usage: generate.py LOCKSTEP [--tokenizer FOLDER] [--layers 12 --heads 12 --hidden 768] [--new 128]
                   [--batches 1,8] [--device cpu|cuda] [--dtype fp32|bf16] [--repeat 3]
                   [--peer transformers|plain]

LOCKSTEP is the program (build/bin/lockstep); its worker lies beside it. Needs PyTorch. The other
program is transformers' generate(); where transformers is not installed, or with --peer plain, it
is the GPT-2 in gpt2_plain.py: PyTorch's own operators and no framework around them. On a machine
with a GPU:

    python3 benchmarks/generate.py build-cuda/bin/lockstep --device cuda --dtype bf16

The weights are random: speed does not depend on them. Without --tokenizer a vocabulary of GPT-2's
size is made up. Both sides have loaded the weights and generated once when the clock starts.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch

import gpt2_plain

PROMPT = "The dog is a great and clever animal"
VOCABULARY = 50257


def made_up_tokenizer(folder):
    """Writes a byte-level vocabulary with as many tokens as GPT-2's: all bytes, then pairs."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in kept}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(kept)))
    letters = [letters[byte] for byte in range(256)]
    merges = [(a, b) for a in letters for b in letters][:VOCABULARY - 257]
    tokens = letters + [a + b for a, b in merges] + ["<|endoftext|>"]
    folder.mkdir()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{a} {b}" for a, b in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder)


def save_folder(model, folder):
    """Writes a folder of Hugging Face by hand."""
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    sizes = {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": model.context,
             "n_embd": model.hidden, "n_layer": len(model.h), "n_head": model.heads}
    (folder / "config.json").write_text(json.dumps(sizes))


def transformers_peer(folder, device, dtype):
    from transformers import GPT2LMHeadModel
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=dtype).to(device).eval()
    model.generation_config.eos_token_id = None

    def generate(tokens, new):
        return model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                              max_new_tokens=new, min_new_tokens=new, use_cache=True,
                              pad_token_id=0)[:, tokens.shape[1]:]
    return generate


def choose_peer(wanted):
    if wanted:
        return wanted
    try:
        import transformers  # noqa: F401
        return "transformers"
    except ImportError:
        return "plain"


def theirs(generate, tokens, arguments):
    begin = time.perf_counter()
    with torch.no_grad():
        out = generate(tokens, arguments.new).cpu()
    return out.numel() / (time.perf_counter() - begin), out.tolist()


def ours(arguments, folder, tokenizer, batch):
    """One process a measurement: it generates twice and says how long the second took."""
    prompts = Path(folder).parent / "prompts.txt"
    prompts.write_text((PROMPT + "\n") * batch)
    worker = str(Path(arguments.lockstep).parent / "lockstep_worker")
    words = [worker, "--generate", "--source", str(folder), "--prompts", str(prompts),
             "--temperature", "0", "--max-tokens", str(arguments.new), "--tokenizer", tokenizer,
             "--device", arguments.device, "--dtype", arguments.dtype, "--json", "--repeats", "2"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return sum(line["tokens"] for line in lines) / lines[0]["seconds"], [line["text"] for line in lines]


def asked(arguments, *words):
    out = subprocess.run([arguments.lockstep, "tokenizer", *words], check=True, capture_output=True)
    return out.stdout.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--tokenizer")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer", choices=["transformers", "plain"])
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model = gpt2_plain.Gpt2(VOCABULARY, 1024, arguments.hidden, arguments.layers, arguments.heads)
    # No end of a text comes up: all texts are as long as asked for.
    with torch.no_grad():
        model.wte.weight[VOCABULARY - 1].zero_()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[arguments.dtype]
    peer = choose_peer(arguments.peer)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save_folder(model, folder)
        tokenizer = arguments.tokenizer or made_up_tokenizer(Path(place) / "words")
        prompt = [int(word) for word in asked(arguments, "encode", tokenizer, PROMPT).split()]
        if peer == "plain":
            generate = model.to(arguments.device, dtype).eval().generate
        else:
            generate = transformers_peer(folder, arguments.device, dtype)
        for batch in map(int, arguments.batches.split(",")):
            tokens = torch.tensor([prompt] * batch, device=arguments.device)
            theirs(generate, tokens, arguments)
            pairs, same = [], 0
            for _ in range(arguments.repeat):
                speed, out = theirs(generate, tokens, arguments)
                own, texts = ours(arguments, folder, tokenizer, batch)
                pairs.append((own, speed))
                text = asked(arguments, "decode", tokenizer, *map(str, out[0])).removesuffix("\n")
                same += text == texts[0]
            ratios = [own / speed for own, speed in pairs]
            print(f"batch {batch}, {arguments.device}, {arguments.dtype}: "
                  f"{statistics.median(ratios):.2f} x {peer} "
                  f"({statistics.median(own for own, _ in pairs):,.0f} and "
                  f"{statistics.median(speed for _, speed in pairs):,.0f} tokens/s; "
                  f"{min(ratios):.2f} to {max(ratios):.2f}); the same text in {same} of "
                  f"{len(pairs)}", flush=True)


main()
