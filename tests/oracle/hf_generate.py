"""A folder that we exported, as transformers continues a prompt with it.

usage: hf_generate.py FOLDER PROMPT NEW TEXT

Loads model and tokenizer from FOLDER, continues PROMPT greedily by NEW tokens, and fails unless
they are the tokens of TEXT, which `lockstep generate` made.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, prompt, new, text = sys.argv[1:5]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
inputs = tokenizer(prompt, return_tensors="pt")
with torch.no_grad():
    out = model.generate(**inputs, do_sample=False, max_new_tokens=int(new),
                         min_new_tokens=int(new), use_cache=True, pad_token_id=0)
tokens = out[0][inputs["input_ids"].shape[1]:].tolist()
theirs = tokenizer.decode(tokens)
same = sum(a == b for a, b in zip(tokenizer.encode(text), tokenizer.encode(theirs)))
if theirs != text:
    sys.exit(f"{same} tokens are the same of {new}:\n  ours   {text!r}\n  theirs {theirs!r}")
