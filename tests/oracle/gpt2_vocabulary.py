"""GPT-2's encoding in tiktoken, from the file that scripts/get_gpt2_vocab.sh fetches."""
import base64

import tiktoken

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def ranks_of(path):
    with open(path, "rb") as file:
        lines = [line.split() for line in file if line.strip()]
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def encoding_of(path):
    ranks = ranks_of(path)
    return tiktoken.Encoding(name="gpt2", pat_str=PATTERN, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": len(ranks)})
