#!/usr/bin/env python3
"""Is there a difference to tiktoken and transformers? Over mixed text and random byte strings.

    PYTHON_WITH_TIKTOKEN benchmarks/tokenizer_difference.py --vocabulary GPT2_TIKTOKEN
        [--megabytes 50] [--strings 100000] [--seed 1] [FOLDER...]

Text of the folders (default: /usr/share, /usr/include, /usr/lib/python3 and this checkout), with
generated text of every script, runs and spaces between; then random byte strings, encoded as lines
of JSON. Ours is `lockstep tokenize` and `lockstep tokenizer convert`, as users have them.
"""
import argparse
import array
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(root / "tests" / "oracle"))
import gpt2_vocabulary  # noqa: E402
import transformers  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--vocabulary", required=True)
parser.add_argument("--program", default=str(root / "build" / "bin" / "lockstep"))
parser.add_argument("--megabytes", type=float, default=50)
parser.add_argument("--strings", type=int, default=100_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("folders", nargs="*", metavar="FOLDER",
                    default=["/usr/share", "/usr/include", "/usr/lib/python3", str(root)])
arguments = parser.parse_args()
rng = random.Random(arguments.seed)
ALL = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
POOLS = [range(32, 127), (9, 10, 13, 32, 32, 0xA0, 0x2003, 0x3000), [ord(c) for c in "''stremvldSTLL "],
         range(0x4E00, 0x9FFF), range(0x400, 0x500), range(0x600, 0x700), range(0x1F300, 0x1FA00), ALL]


def generated():
    """A text of one script, of any code points, or a long run."""
    if rng.random() < 0.02:
        return rng.choice("a =-\n1é日") * rng.randint(100, 20_000)
    pool = rng.choice(POOLS)
    return "".join(chr(rng.choice(pool)) for _ in range(rng.choice([1, 2, 3, 5, 8, 20, 200])))


def texts_in(folders):
    paths = [pathlib.Path(where) / name for folder in folders for where, _, names in os.walk(folder)
             for name in names if ".git/" not in where + "/"]
    paths.sort()
    rng.shuffle(paths)
    for path in paths:
        try:
            data = path.read_bytes()[:400_000]
            yield (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        except (OSError, EOFError, ValueError):  # not a text, or none that can be read
            continue


def mixed(size):
    parts, total = [], 0
    for text in texts_in(arguments.folders):
        for part in (text, generated(), generated()):
            part = part.replace("<|endoftext|>", "")
            parts.append(part)
            total += len(part.encode())
        if total >= size:
            return parts
    while total < size:
        parts.append(generated())
        total += len(parts[-1].encode())
    return parts


def random_bytes():
    common = b"etaoin shrdlu '\n\t  stremvl0123456789.,\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
    wild = rng.random() ** 2
    return bytes(rng.randrange(256) if rng.random() < wild else rng.choice(common)
                 for _ in range(rng.choice([1, 2, 3, 5, 10, 30, 100])))


def ours(texts, folder, name):
    """The tokens of each text, by the program."""
    path, out = folder / f"{name}.jsonl", folder / f"{name}.bin"
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    subprocess.run([arguments.program, "tokenize", str(path), "-o", str(out), "--tokenizer",
                    arguments.vocabulary], check=True, stdout=subprocess.DEVNULL)
    tokens = array.array("H")
    tokens.frombytes(out.read_bytes()[1024:])
    documents, end = [], peer.n_vocab - 1
    for token in tokens:
        if token == end:
            documents.append([])
        else:
            documents[-1].append(token)
    return documents


def compare(name, texts, folder):
    texts = [text for text in texts if text]  # the empty are left out by the program
    got = ours(texts, folder, name)
    assert len(got) == len(texts), (len(got), len(texts))
    size = tokens = 0
    for text, mine in zip(texts, got):
        for library, wanted in (("tiktoken", peer.encode_ordinary(text)), ("transformers", fast(text)["input_ids"])):
            if mine != wanted:
                sys.exit(f"{name}: {text[:60]!r}: {mine[:20]}, {library} has {wanted[:20]}")
        size += len(text.encode())
        tokens += len(mine)
    print(f"{name}: {len(texts)} texts, {size / 1e6:.1f} MB, {tokens} tokens: no difference", flush=True)


peer = gpt2_vocabulary.encoding_of(arguments.vocabulary)
with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    subprocess.run([arguments.program, "tokenizer", "convert", arguments.vocabulary, "-o", str(place / "gpt2")],
                   check=True, stdout=subprocess.DEVNULL)
    fast = transformers.AutoTokenizer.from_pretrained(str(place / "gpt2"))
    compare("mixed text", mixed(arguments.megabytes * 1e6), place)
    # The program reads JSON, which has no invalid UTF-8: what it does with that is tested by the
    # .txt files that follow.
    strings = [random_bytes() for _ in range(arguments.strings)]
    compare("random strings, decoded", [raw.decode("utf-8", errors="replace") for raw in strings], place)
    (place / "raw").mkdir()
    for i, raw in enumerate(strings):
        if raw:
            (place / "raw" / f"{i:06}.txt").write_bytes(raw)
    subprocess.run([arguments.program, "tokenize", str(place / "raw"), "-o", str(place / "raw.bin"), "--tokenizer",
                    arguments.vocabulary], check=True, stdout=subprocess.DEVNULL)
    same = (place / "raw.bin").read_bytes() == (place / "random strings, decoded.bin").read_bytes()
    print(f"random byte strings: {len(strings)} files: {'no difference' if same else 'DIFFERENT'}")
    sys.exit(0 if same else 1)
