"""Whether Hugging Face's trainer finds the vocabulary and the merges that we found.

    tokenizer_train.py FOLDER VOCAB_SIZE MIN_FREQUENCY TEXT...

FOLDER is what `lockstep tokenizer train` wrote for the same files.
"""
import json
import sys

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers


def texts_of(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def main():
    folder, vocab_size, min_frequency, *paths = sys.argv[1:]
    peer = tokenizers.Tokenizer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=int(vocab_size), min_frequency=int(min_frequency),
        special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    if paths[0].endswith(".jsonl"):
        peer.train_from_iterator((text for path in paths for text in texts_of(path)), trainer)
    else:
        peer.train(paths, trainer)
    wanted = json.loads(peer.to_str())["model"]
    with open(folder + "/vocab.json", encoding="utf-8") as file:
        vocab = json.load(file)
    with open(folder + "/merges.txt", encoding="utf-8") as file:
        merges = [line.rstrip("\n").split(" ") for line in file][1:]
    theirs = [list(merge) for merge in wanted["merges"]]
    for i, (a, b) in enumerate(zip(merges, theirs)):
        if a != b:
            sys.exit(f"merge {i}: {a}, theirs {b}")
    assert len(merges) == len(theirs), (len(merges), len(theirs))
    assert vocab == wanted["vocab"]
    print(f"{len(vocab)} tokens, {len(merges)} merges: no difference")


main()
