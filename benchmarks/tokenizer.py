#!/usr/bin/env python3
"""Encoding text with GPT-2's vocabulary: Lockstep against tiktoken, in turn.

    benchmarks/tokenizer.py --python PYTHON_WITH_TIKTOKEN --vocabulary GPT2_TIKTOKEN TEXT...

For each text: one thread, then two. The ratio comes first; a text that the two encode to a
different number of tokens ends the run.
"""
import argparse
import pathlib

import harness

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--vocabulary", required=True)
parser.add_argument("--program", default=str(root / "build" / "benchmarks" / "bench_tokenizer"))
parser.add_argument("--pairs", type=int, default=5)
parser.add_argument("--cpu", action="store_true", help="by CPU time, where other jobs are on the cores")
parser.add_argument("texts", nargs="+", metavar="TEXT")
arguments = parser.parse_args()


def measure(command, counts):
    result = harness.run_json(command)
    counts.add(result["tokens"])
    return result["cpu_mb_s" if arguments.cpu else "mb_s"]


for text in arguments.texts:
    for threads in ("1", "2"):
        words = [arguments.vocabulary, text, threads]
        peer = [arguments.python, str(root / "benchmarks" / "peers" / "tokenizer.py"), *words]
        ours, theirs = set(), set()
        harness.compare(
            f"{'MB per CPU second' if arguments.cpu else 'MB/s'} of {pathlib.Path(text).name}, {threads} thread{'s' if threads == '2' else ''}",
            arguments.pairs, lambda: measure([arguments.program, *words], ours),
            lambda: measure(peer, theirs), peer_name="tiktoken")
        # Its batch is of pieces cut anywhere, so only whole texts can be compared.
        if threads == "1" and ours != theirs:
            raise SystemExit(f"{text}: {ours} tokens, tiktoken has {theirs}")
