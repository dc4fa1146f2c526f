#!/usr/bin/env python3
"""tiktoken on the same text: peers/tokenizer.py GPT2_TIKTOKEN TEXT THREADS; one JSON line.

THREADS 1 is encode_ordinary() of the whole text; more are encode_ordinary_batch() of pieces
of a megabyte, as tiktoken offers it.
"""
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracle"))
import gpt2_vocabulary  # noqa: E402

vocabulary, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
peer = gpt2_vocabulary.encoding_of(vocabulary)
text = pathlib.Path(path).read_bytes().decode("utf-8", errors="replace")
size = len(text.encode())
pieces = [text[i:i + 1_000_000] for i in range(0, len(text), 1_000_000)]
begin, cpu_begin = time.perf_counter(), time.process_time()
if threads == 1:
    count = len(peer.encode_ordinary(text))
else:
    count = sum(map(len, peer.encode_ordinary_batch(pieces, num_threads=threads)))
took, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
print(json.dumps({"mb_s": size / 1e6 / took, "cpu_mb_s": size / 1e6 / cpu, "tokens": count, "bytes": size}))
