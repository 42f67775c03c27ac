"""The products of `tandem bench kernels` by ggml, which llama.cpp calls; one JSON object a figure, by the names of ours.

bench_kernels_llama.py THREADS

Our weights in bf16 beside its bf16, ours in fp8 beside its Q8_0, whose activations are quantised while it runs as well.
"""

import ctypes
import json
import pathlib
import statistics
import sys
import time

import llama_cpp

SECONDS = 1.0
PRODUCTS = [(512, 3072, 576), (512, 576, 1536), (512, 6144, 1024), (64, 3072, 576), (64, 49152, 576), (16, 49152, 576),
            (4, 49152, 576), (1, 49152, 576), (2048, 4096, 4096)]
F32, Q8_0, BF16 = 0, 8, 30  # enum ggml_type
TIMES = 8  # products in a graph, so that starting its threads, once a graph, does not count


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p), ("threads", ctypes.c_int),
                ("pool", ctypes.c_void_p), ("abort", ctypes.c_void_p), ("abort_data", ctypes.c_void_p), ("use_ref", ctypes.c_bool)]


def load():
    folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
    base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"), mode=ctypes.RTLD_GLOBAL)
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    for function, result, arguments in (
        (base.ggml_init, pointer, [InitParams]), (base.ggml_free, None, [pointer]),
        (base.ggml_new_tensor_2d, pointer, [pointer, ctypes.c_int, size, size]),
        (base.ggml_mul_mat, pointer, [pointer, pointer, pointer]), (base.ggml_new_graph, pointer, [pointer]),
        (base.ggml_build_forward_expand, None, [pointer, pointer]), (base.ggml_get_data, pointer, [pointer]),
        (base.ggml_nbytes, ctypes.c_size_t, [pointer]), (base.ggml_row_size, ctypes.c_size_t, [ctypes.c_int, size]),
        (cpu.ggml_cpu_init, None, []),
        (cpu.ggml_graph_plan, Plan, [pointer, ctypes.c_int, pointer]),
        (cpu.ggml_graph_compute, ctypes.c_int, [pointer, ctypes.POINTER(Plan)]),
    ):
        function.restype, function.argtypes = result, arguments
    cpu.ggml_cpu_init()
    return base, cpu


def measure(base, cpu, threads, kind, m, n, k):
    """Seconds of one product of m rows of k with n rows of weights: the median."""
    room = base.ggml_row_size(kind, k) * n + 4 * m * (k + TIMES * n) + (1 << 20)
    context = base.ggml_init(InitParams(room, None, False))
    try:
        weights, rows = base.ggml_new_tensor_2d(context, kind, k, n), base.ggml_new_tensor_2d(context, F32, k, m)
        for tensor in (weights, rows):
            ctypes.memset(base.ggml_get_data(tensor), 0, base.ggml_nbytes(tensor))
        graph = base.ggml_new_graph(context)
        for _ in range(TIMES):
            base.ggml_build_forward_expand(graph, base.ggml_mul_mat(context, weights, rows))
        plan = cpu.ggml_graph_plan(graph, threads, None)
        work = ctypes.create_string_buffer(max(plan.work_size, 1))
        plan.work_data = ctypes.addressof(work)
        times, begin = [], time.perf_counter()
        while len(times) < 4 or time.perf_counter() - begin < SECONDS:
            start = time.perf_counter()
            if cpu.ggml_graph_compute(graph, ctypes.byref(plan)) != 0:
                raise RuntimeError("ggml failed")
            times.append((time.perf_counter() - start) / TIMES)
        return statistics.median(times[1:])
    finally:
        base.ggml_free(context)


def main():
    base, cpu = load()
    for m, n, k in PRODUCTS:
        for kind, words in ((BF16, ""), (Q8_0, ", weights in fp8")):
            seconds = measure(base, cpu, int(sys.argv[1]), kind, m, n, k)
            print(json.dumps({"name": f"gemm {m}x{n}x{k}{words}", "value": 2 * m * n * k / seconds / 1e9, "unit": "GFLOP/s"}),
                  flush=True)


main()
