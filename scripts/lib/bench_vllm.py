"""The workloads of `tandem bench engine`, by vLLM on the CPU in bf16; one JSON object a figure.

bench_vllm.py MODEL THREADS
"""

import json
import os
import random
import statistics
import sys
import time

CONTEXT, SAID = 256, 24
ROUNDS = 3


def show(name, value):
    print(json.dumps({"name": name, "value": value, "unit": "tok/s"}), file=results, flush=True)


def main():
    model, threads = sys.argv[1:]
    os.environ.update(VLLM_CPU_OMP_THREADS_BIND=f"0-{int(threads) - 1}", VLLM_CPU_KVCACHE_SPACE="2", VLLM_LOGGING_LEVEL="ERROR")
    import vllm

    engine = vllm.LLM(model, dtype="bfloat16", enforce_eager=True, max_model_len=1024, max_num_seqs=64,
                      max_num_batched_tokens=4096, enable_prefix_caching=False, disable_log_stats=True)
    vocabulary = json.load(open(f"{model}/config.json"))["vocab_size"]
    draw = random.Random(1)

    def seconds(count, length, said):
        settings = vllm.SamplingParams(max_tokens=said, min_tokens=said, ignore_eos=True, temperature=1, detokenize=False)
        times = []
        for _ in range(ROUNDS + 1):
            prompts = [{"prompt_token_ids": [draw.randrange(vocabulary) for _ in range(length)]} for _ in range(count)]
            start = time.perf_counter()
            engine.generate(prompts, settings, use_tqdm=False)
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    for count in (1, 8):
        show(f"prefill {count}x512", count * 512 / seconds(count, 512, 1))
    for count in (1, 16, 64):
        show(f"decode {count} at {CONTEXT}", count * (SAID - 1) / (seconds(count, CONTEXT, SAID) - seconds(count, CONTEXT, 1)))


if __name__ == "__main__":  # vLLM starts processes that import this file
    # Its processes print to stdout; the figures keep that for themselves.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
