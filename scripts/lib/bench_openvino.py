"""The workloads of `tandem bench engine`, by OpenVINO GenAI with continuous batching in bf16; one JSON object a figure.

bench_openvino.py MODEL THREADS EXPORT      (EXPORT: a folder for the converted model, made where it is missing)
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
import openvino
import openvino_genai

CONTEXT, SAID = 256, 24
ROUNDS = 3


def show(name, value):
    print(json.dumps({"name": name, "value": value, "unit": "tok/s"}), flush=True)


def export(model, folder):
    if (folder / "openvino_model.xml").exists():
        return
    command = pathlib.Path(sys.executable).with_name("optimum-cli")
    options = ["--model", model, "--task", "text-generation-with-past", "--weight-format", "fp16"]
    subprocess.run([command, "export", "openvino", *options, folder], check=True, stdout=sys.stderr)


def main():
    model, threads, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    export(model, folder)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 4
    scheduler.max_num_batched_tokens = 4096
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": threads}
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
    random = numpy.random.default_rng(1)

    def seconds(count, length, said):
        config = openvino_genai.GenerationConfig(max_new_tokens=said, min_new_tokens=said, ignore_eos=True, do_sample=said > 1)
        times = []
        for _ in range(ROUNDS + 1):
            prompts = [openvino.Tensor(random.integers(0, vocabulary, (1, length), dtype=numpy.int64)) for _ in range(count)]
            start = time.perf_counter()
            pipeline.generate(prompts, [config] * count)
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    for count in (1, 8):
        show(f"prefill {count}x512", count * 512 / seconds(count, 512, 1))
    for count in (1, 16, 64):
        show(f"decode {count} at {CONTEXT}", count * (SAID - 1) / (seconds(count, CONTEXT, SAID) - seconds(count, CONTEXT, 1)))


main()
