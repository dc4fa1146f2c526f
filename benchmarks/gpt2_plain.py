"""GPT-2 in PyTorch with kept keys and values, and nothing around it: what generate.py measures
against where transformers is not installed. Names and layouts are those of Hugging Face's files.
"""

import torch
from torch import nn
from torch.nn import functional


class Linear(nn.Module):
    """Keeps [in, out], as the files do."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Linear(hidden, 3 * hidden)
        self.c_proj = Linear(hidden, hidden)

    def forward(self, x, kept):
        rows, new, hidden = x.shape
        parts = self.c_attn(x).view(rows, new, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if kept is not None:
            key = torch.cat([kept[0], key], dim=2)
            value = torch.cat([kept[1], value], dim=2)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=new > 1)
        return self.c_proj(seen.transpose(1, 2).reshape(rows, new, hidden)), (key, value)


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.c_fc = Linear(hidden, 4 * hidden)
        self.c_proj = Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.attn = Attention(hidden, heads)
        self.ln_2 = nn.LayerNorm(hidden)
        self.mlp = Mlp(hidden)

    def forward(self, x, kept):
        seen, kept = self.attn(self.ln_1(x), kept)
        x = x + seen
        return x + self.mlp(self.ln_2(x)), kept


class Gpt2(nn.Module):
    def __init__(self, vocabulary, context, hidden, layers, heads):
        super().__init__()
        self.context, self.hidden, self.heads = context, hidden, heads
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(context, hidden)
        self.h = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, tokens, kept):
        begin = 0 if kept[0] is None else kept[0][0].shape[2]
        places = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(places)
        for number, block in enumerate(self.h):
            x, kept[number] = block(x, kept[number])
        return functional.linear(self.ln_f(x[:, -1]), self.wte.weight)

    def generate(self, tokens, new):
        """Returns the likeliest tokens behind the given ones, (rows, new)."""
        kept = [None] * len(self.h)
        out = []
        for _ in range(new):
            tokens = self(tokens, kept).argmax(dim=-1, keepdim=True)
            out.append(tokens)
        return torch.cat(out, dim=1)
