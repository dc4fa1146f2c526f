"""GPT-2 between transformers and us: weights in folders of Hugging Face.

usage: hf_gpt2.py make FOLDER SIZE
           SIZE is tiny or 124m. Writes a model with random weights as save_pretrained() does:
           FOLDER/whole, and of the tiny one FOLDER/sharded, FOLDER/bare (no prefix, with masks)
           and FOLDER/bin (pytorch_model.bin). FOLDER/shown.safetensors has tokens and targets, and
           what the model makes of them: logits, loss and gradients by our names.
       hf_gpt2.py steps FOLDER TOKENS
           Ten steps of AdamW of FOLDER/whole over all windows in the file TOKENS; prints a loss a line.
       hf_gpt2.py read FOLDER SHOWN
           FOLDER, which we exported, loads without a complaint and makes of the tokens in SHOWN the
           logits in it.
       hf_gpt2.py tokenizer FOLDER
           FOLDER, which we exported, has a tokenizer that gives a text back.
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

TINY = dict(vocab_size=97, n_positions=24, n_embd=48, n_layer=3, n_head=4, bos_token_id=96, eos_token_id=96)
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def cross_entropy(model, tokens, targets):
    logits = model(tokens).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def random_model(size):
    torch.manual_seed(5)
    sizes = TINY if size == "tiny" else {}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    with torch.no_grad():  # norms of 1 and biases of 0 hide mistakes
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model.float().train()


def other_folders(model, folder):
    model.save_pretrained(folder / "sharded", max_shard_size="100KB")
    assert (folder / "sharded/model.safetensors.index.json").exists()
    shutil.copytree(folder / "whole", folder / "bare")
    bare = {name: value.contiguous() for name, value in model.transformer.state_dict().items()}
    for i in range(model.config.n_layer):  # as the original files have them
        bare[f"h.{i}.attn.bias"] = torch.ones(1, 1, 24, 24).tril()
    save_file(bare, folder / "bare/model.safetensors", metadata={"format": "pt"})
    (folder / "bin").mkdir()
    shutil.copy(folder / "whole/config.json", folder / "bin")
    torch.save(model.state_dict(), folder / "bin/pytorch_model.bin")


def tokenizer_files(folder):
    """Of bytes: no merges are needed to read anything."""
    letters = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a", "<|endoftext|>"]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "GPT2Tokenizer", "model_max_length": 100}))


def make(folder, size):
    folder = Path(folder)
    model = random_model(size)
    model.save_pretrained(folder / "whole")
    if size == "tiny":
        other_folders(model, folder)
        tokenizer_files(folder / "whole")
    length = 24 if size == "tiny" else 20
    tokens, targets = torch.randint(model.config.vocab_size, (2, 3 if size == "tiny" else 1, length))
    logits, loss = cross_entropy(model, tokens, targets)
    loss.backward()
    shown = {"tokens": tokens, "targets": targets, "logits": logits.detach(), "loss": loss.detach()}
    for name, parameter in model.transformer.named_parameters():
        gradient = parameter.grad.t() if name.endswith(TRANSPOSED) else parameter.grad
        shown["gradient." + name] = gradient.contiguous()
    save_file(shown, folder / "shown.safetensors")


def steps(folder, file):
    model = GPT2LMHeadModel.from_pretrained(Path(folder) / "whole").float().train()
    sequence = model.config.n_positions
    all_tokens = np.fromfile(file, dtype=np.uint16).astype(np.int64)
    count = (len(all_tokens) - 1) // sequence
    tokens = torch.tensor(all_tokens[:count * sequence]).view(count, sequence)
    targets = torch.tensor(all_tokens[1:count * sequence + 1]).view(count, sequence)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        loss = cross_entropy(model, tokens, targets)[1]
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))


def read(folder, file):
    model, about = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not about.get(problem), f"{problem}: {about[problem]}"
    assert type(model).__name__ == "GPT2LMHeadModel", type(model)
    shown = load_file(file)
    with torch.no_grad():
        logits = model.float().eval()(shown["tokens"]).logits
    assert logits.shape == shown["logits"].shape, (logits.shape, shown["logits"].shape)
    worst = (logits - shown["logits"]).abs().max().item()
    print(f"largest difference of logits: {worst:.1e}")
    assert worst < 1e-4


def tokenizer(folder):
    words = AutoTokenizer.from_pretrained(folder)
    text = "Read me, and give me back."
    ids = words(text)["input_ids"]
    assert words.decode(ids) == text, (ids, words.decode(ids))
    assert max(ids) < TINY["vocab_size"]


globals()[sys.argv[1]](*sys.argv[2:])
