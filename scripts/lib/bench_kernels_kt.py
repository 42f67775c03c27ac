"""The mixture of experts of `tandem bench kernels` by kt-kernel in bf16; one JSON object a figure, by the names of ours.

bench_kernels_kt.py THREADS
"""

import json
import os
import statistics
import sys
import time

import torch

EXPERTS, TOP_K, EXPERT_WIDTH, WIDTH = 64, 8, 512, 1024
SECONDS = 1.0


def main():
    # What it says while it starts is not for those who read our figures.
    shown = os.dup(1)
    os.dup2(2, 1)
    import kt_kernel

    kt, threads = kt_kernel.kt_kernel_ext, int(sys.argv[1])
    torch.set_num_threads(threads)
    workers = kt.WorkerPoolConfig()
    workers.subpool_count, workers.subpool_numa_map, workers.subpool_thread_count = 1, [0], [threads]
    engine = kt.CPUInfer(workers)
    gate, up = ([torch.randn(EXPERT_WIDTH, WIDTH).div(32).bfloat16() for _ in range(EXPERTS)] for _ in "gu")
    down = [torch.randn(WIDTH, EXPERT_WIDTH).div(32).bfloat16() for _ in range(EXPERTS)]
    nowhere = torch.zeros(EXPERTS, dtype=torch.bool)  # no expert is on a GPU
    config = kt.moe.MOEConfig(EXPERTS, TOP_K, WIDTH, EXPERT_WIDTH, nowhere.data_ptr())
    config.layer_idx, config.pool, config.max_len = 0, engine.backend_, 1024
    for name, weights in (("gate", gate), ("up", up), ("down", down)):
        setattr(config, f"{name}_projs", [[each.data_ptr() for each in weights]])
        setattr(config, f"{name}_scales", [[0] * EXPERTS])
    mixture = kt.moe.AMXBF16_MOE(config)  # of AMX or AVX512_BF16, whatever there is
    numbers = torch.arange(EXPERTS)
    engine.submit(mixture.load_weights_task(numbers.data_ptr()))
    engine.sync()
    for tokens in (512, 16):
        x = torch.randn(tokens, WIDTH).bfloat16()
        out, count = torch.empty_like(x), torch.tensor([tokens], dtype=torch.int32)
        weights, ids = torch.randn(tokens, EXPERTS).softmax(-1).topk(TOP_K)
        ids, weights = ids.contiguous(), weights.contiguous()
        times = []
        while len(times) < 4 or sum(times) < SECONDS:
            start = time.perf_counter()
            engine.submit(mixture.forward_task(count.data_ptr(), TOP_K, ids.data_ptr(), weights.data_ptr(), x.data_ptr(),
                                               out.data_ptr(), False))
            engine.sync()
            times.append(time.perf_counter() - start)
        name = f"mixture, {tokens} tokens, {TOP_K} of {EXPERTS} experts, {EXPERT_WIDTH}x{WIDTH}"
        flops = 6 * tokens * TOP_K * EXPERT_WIDTH * WIDTH
        os.write(shown, (json.dumps({"name": name, "value": flops / statistics.median(times[1:]) / 1e9, "unit": "GFLOP/s"})
                         + "\n").encode())


main()
