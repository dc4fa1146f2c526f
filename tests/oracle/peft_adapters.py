"""Adapters between PEFT and us, on a GPT-2 with our random weights.

usage: peft_adapters.py read FILE HEADS FOLDER
           FOLDER has adapters that we wrote; with them PEFT's model makes of "tokens" in FILE
           what ours did ("logits"), merged and not
       peft_adapters.py write FILE HEADS FOLDER OUT
           writes random adapters to FOLDER; OUT gets the logits of the model with them
FILE also has the weights, as "weight.<name>".
"""

import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel


def is_transposed(name):
    """Their linear layers (Conv1D) hold the transposed weight."""
    return name.endswith(".weight") and (".attn." in name or ".mlp." in name)


def base_model(tensors, heads):
    weights = {k[7:]: v for k, v in tensors.items() if k.startswith("weight.")}
    vocabulary, hidden = weights["wte.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_positions=weights["wpe.weight"].shape[0],
                   n_embd=hidden, n_layer=layers, n_head=heads))
    own = dict(model.transformer.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value.t() if is_transposed(name) else value)
    return model.eval()


def check(what, ours, theirs):
    worst = (ours - theirs).abs().max().item()
    if not worst < 1e-4:
        sys.exit(f"{what}: differs by {worst}")


def main():
    command, file, heads, folder = sys.argv[1:5]
    tensors = load_file(file)
    model = base_model(tensors, int(heads))
    with torch.no_grad():
        if command == "read":
            before = model(tensors["tokens"]).logits
            adapted = PeftModel.from_pretrained(model, folder).eval()
            logits = adapted(tensors["tokens"]).logits
            assert (logits - before).abs().max() > 1e-2, "the adapters do nothing"
            check("logits", tensors["logits"], logits)
            merged = adapted.merge_and_unload()
            check("merged logits", tensors["logits"], merged(tensors["tokens"]).logits)
            return
        torch.manual_seed(5)
        adapted = get_peft_model(
            model, LoraConfig(r=3, lora_alpha=12, target_modules=["c_attn", "mlp.c_proj"],
                              fan_in_fan_out=True, task_type="CAUSAL_LM")).eval()
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
        adapted.save_pretrained(folder)
        save_file({"logits": adapted(tensors["tokens"]).logits.contiguous()}, sys.argv[5])


main()
