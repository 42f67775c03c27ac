"""Speed of `tandem tokenize` beside HF tokenizers on one text with one thread, interleaved, median of five.

    python tests/golden/bench_tokenizer.py DIR_OR_TOKENIZER_JSON TEXT_FILE [--tandem BINARY]

Tandem is timed from outside: reading JSON Lines, encoding and writing the ids, less the time of an empty run.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

REPEATS = 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    options = parser.parse_args()
    path = options.model / "tokenizer.json" if options.model.is_dir() else options.model
    reference = Tokenizer.from_file(str(path))
    text = options.text.read_text(encoding="utf-8")
    size = len(text.encode())

    def run_tandem(count):
        lines = (json.dumps({"text": text}) + "\n") * count
        start = time.perf_counter()
        subprocess.run([options.tandem, "tokenize", "--model", str(options.model)], input=lines, text=True, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    def run_reference():
        start = time.perf_counter()
        reference.encode(text)
        return time.perf_counter() - start

    ours, theirs = [], []
    run_reference()
    for _ in range(5):
        ours.append((run_tandem(1 + REPEATS) - run_tandem(1)) / REPEATS)
        theirs.append(run_reference())
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{path}: {size} bytes: tandem {size / a / 1e6:.1f} MB/s, HF tokenizers {size / b / 1e6:.1f} MB/s, ratio {b / a:.1f}")


if __name__ == "__main__":
    main()
