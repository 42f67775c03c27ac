"""HF tokenizers on one text with one thread, as `tandem bench tokenizer` has its figures.

bench_tokenizer.py TOKENIZER_JSON TEXT
"""

import json
import os
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.decoders import DecodeStream  # noqa: E402

tokenizer = Tokenizer.from_file(sys.argv[1])
tokenizer.no_truncation()
tokenizer.no_padding()
text = open(sys.argv[2], encoding="utf-8", errors="replace").read()
size = len(text.encode())
ids = tokenizer.encode(text, add_special_tokens=False).ids


def decode_stream():
    stream = DecodeStream(skip_special_tokens=False)
    return sum(len(piece) for id in ids if (piece := stream.step(tokenizer, id)))


def measure(name, work):
    work()
    rounds = []
    while len(rounds) < 3 or sum(rounds) < 1:
        start = time.perf_counter()
        work()
        rounds.append(time.perf_counter() - start)
    print(json.dumps({"name": name, "value": size / statistics.median(rounds) / 1e6, "unit": "MB/s"}))


measure("encode", lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False))
measure("encode, with the ends of tokens", lambda: tokenizer.encode(text, add_special_tokens=False))
measure("decode", lambda: tokenizer.decode(ids, skip_special_tokens=False))
measure("decode token by token", decode_stream)
