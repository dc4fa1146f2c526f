"""Whether tiktoken and transformers give the tokens that we gave.

    tokenizer_encode.py TIKTOKEN_FILE FOLDER TEXTS TOKENS SPECIAL

TEXTS holds byte strings, each behind its length in 32 bits; TOKENS our tokens of each, behind
their number. FOLDER is the same tokenizer as we save it. SPECIAL: "text" or "allow".
"""
import array
import os
import sys

import transformers

import gpt2_vocabulary


def pieces(path, width):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "little") * width
        yield data[at + 4:at + 4 + size]
        at += 4 + size


def main():
    tiktoken_file, folder, texts, tokens, special = sys.argv[1:]
    peer = gpt2_vocabulary.encoding_of(tiktoken_file)
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    assert fast.is_fast and len(fast) == peer.n_vocab, (fast, len(fast), peer.n_vocab)
    allowed = "all" if special == "allow" else set()
    count = 0
    for raw, ours in zip(pieces(texts, 1), pieces(tokens, 4), strict=True):
        text = raw.decode("utf-8", errors="replace")
        ours = array.array("I", ours).tolist()
        wanted = peer.encode(text, allowed_special=allowed, disallowed_special=())
        if ours != wanted:
            sys.exit(f"text {count}, {text[:80]!r}: {ours[:20]}, tiktoken {wanted[:20]}")
        if special == "allow" or "<|endoftext|>" not in text:
            wanted = fast(text)["input_ids"]
            if ours != wanted:
                sys.exit(f"text {count}, {text[:80]!r}: {ours[:20]}, transformers {wanted[:20]}")
        count += 1
    assert count > 0
    print(f"{count} texts, {os.path.getsize(texts)} bytes: no difference")


main()
