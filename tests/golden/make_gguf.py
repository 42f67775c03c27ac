"""Makes tests/golden/gguf/: small GGUF files and what they must become, with the `gguf` package as the reference.

    python -m venv v && v/bin/pip install gguf==0.19.0 safetensors==0.8.0 numpy && v/bin/python tests/golden/make_gguf.py

blocks.gguf      one tensor of random blocks for each format; blocks.safetensors: the floats that they stand for
tiny-llama.gguf  a llama of two layers with F32 and F16 weights, its query and key rows interleaved as llama.cpp's converter
                 does it; tiny-llama.safetensors: the weights it was made from, in the hub's layout
tiny-llama31.gguf  a llama of one layer with the RoPE of Llama 3.1 as factors, a token that ends turns, and tokens before
                 and behind each text
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "gguf"
rng = np.random.default_rng(1)


def blocks():
    writer = gguf.GGUFWriter(OUT / "blocks.gguf", "llama")
    expected = {}
    for kind in (Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q4_K, Type.Q5_K, Type.Q6_K):
        size, width = gguf.GGML_QUANT_SIZES[kind]
        rows, columns = 3, 512
        if kind == Type.F32:
            data = rng.standard_normal((rows, columns), dtype=np.float32)
        elif kind == Type.F16:
            data = rng.standard_normal((rows, columns)).astype(np.float16)
        else:
            data = rng.integers(0, 256, (rows, columns // size * width), dtype=np.uint8)
            if kind != Type.BF16:
                # Scales are halves somewhere in the block: keep every byte that could be a high byte of one small, so that
                # no scale is infinite or NaN.
                data = data.reshape(-1, width)
                for at in {Type.Q4_0: [1], Type.Q4_1: [1, 3], Type.Q5_0: [1], Type.Q5_1: [1, 3], Type.Q8_0: [1],
                           Type.Q4_K: [1, 3], Type.Q5_K: [1, 3], Type.Q6_K: [209]}[kind]:
                    data[:, at] &= 0xBF
                data = data.reshape(rows, -1)
            else:
                data[:, 1::2] &= 0xBF
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        flat = data.view(np.uint8) if kind not in (Type.F32, Type.F16) else data
        expected[kind.name] = gguf.dequantize(flat, kind).astype(np.float32).reshape(rows, columns)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    save_file(expected, OUT / "blocks.safetensors")


def interleave(weights, heads):
    shape = weights.shape
    return weights.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def tiny_llama():
    width, heads, kv_heads, size, mlp, layers = 24, 6, 2, 4, 40, 2
    chars = [chr(c) for c in range(33, 127)] + [chr(c) for c in range(161, 173)] + [chr(c) for c in range(174, 256)]
    chars += [chr(256 + i) for i in range(256 - len(chars))]
    tokens = ["<|end|>", "<|user|>"] + chars + ["Ġt", "he", "Ġthe"]
    merges = ["Ġ t", "h e", "Ġt he"]
    w = gguf.GGUFWriter(OUT / "tiny-llama.gguf", "llama")
    w.add_block_count(layers), w.add_context_length(64), w.add_embedding_length(width), w.add_feed_forward_length(mlp)
    w.add_head_count(heads), w.add_head_count_kv(kv_heads), w.add_rope_freq_base(5000.0), w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(size), w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("smollm"), w.add_token_list(tokens), w.add_token_merges(merges)
    w.add_token_types([3, 3] + [1] * (len(tokens) - 2)), w.add_bos_token_id(1), w.add_eos_token_id(0)
    w.add_chat_template("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}")
    expected = {}

    def add(theirs, ours, shape, heads_of=None, half=False):
        values = rng.standard_normal(shape).astype(np.float16 if half else np.float32)
        expected[ours] = values.astype(np.float32)
        w.add_tensor(theirs, np.ascontiguousarray(interleave(values, heads_of)) if heads_of else values)

    add("token_embd.weight", "model.embed_tokens.weight", (len(tokens), width), half=True)
    for i in range(layers):
        theirs, ours = f"blk.{i}.", f"model.layers.{i}."
        add(theirs + "attn_norm.weight", ours + "input_layernorm.weight", (width,))
        add(theirs + "attn_q.weight", ours + "self_attn.q_proj.weight", (heads * size, width), heads)
        add(theirs + "attn_k.weight", ours + "self_attn.k_proj.weight", (kv_heads * size, width), kv_heads, half=True)
        add(theirs + "attn_v.weight", ours + "self_attn.v_proj.weight", (kv_heads * size, width))
        add(theirs + "attn_output.weight", ours + "self_attn.o_proj.weight", (width, heads * size))
        add(theirs + "ffn_norm.weight", ours + "post_attention_layernorm.weight", (width,))
        add(theirs + "ffn_gate.weight", ours + "mlp.gate_proj.weight", (mlp, width))
        add(theirs + "ffn_up.weight", ours + "mlp.up_proj.weight", (mlp, width))
        add(theirs + "ffn_down.weight", ours + "mlp.down_proj.weight", (width, mlp))
    add("output_norm.weight", "model.norm.weight", (width,))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    save_file(expected, OUT / "tiny-llama.safetensors")


def tiny_llama31():
    """As llama.cpp's converter writes such a model: the factors of the frequencies are a tensor, their settings are not said."""
    width, heads, size, mlp, theta = 32, 2, 16, 32, 500000.0
    chars = [chr(c) for c in range(33, 127)] + [chr(c) for c in range(161, 173)] + [chr(c) for c in range(174, 256)]
    tokens = ["<|begin|>", "<|end|>", "<|eot|>"] + chars + [chr(256 + i) for i in range(256 - len(chars))] + ["he"]
    w = gguf.GGUFWriter(OUT / "tiny-llama31.gguf", "llama")
    w.add_block_count(1), w.add_context_length(65536), w.add_embedding_length(width), w.add_feed_forward_length(mlp)
    w.add_head_count(heads), w.add_head_count_kv(heads), w.add_rope_freq_base(theta), w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(size), w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("llama-bpe"), w.add_token_list(tokens), w.add_token_merges(["h e"])
    w.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3)), w.add_bos_token_id(0), w.add_eos_token_id(1), w.add_eot_token_id(2)
    w.add_add_bos_token(True), w.add_add_eos_token(True)
    wavelengths = 2 * np.pi * theta ** (np.arange(0, size, 2) / size)
    smooth = (8192 / wavelengths - 1) / (4 - 1)
    factors = np.where(wavelengths < 8192 / 4, 1, np.where(wavelengths > 8192, 8, 1 / ((1 - smooth) / 8 + smooth)))
    w.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    for name, shape in [("token_embd", (len(tokens), width)), ("blk.0.attn_norm", (width,)), ("blk.0.attn_q", (width, width)), ("blk.0.attn_k", (width, width)),
                        ("blk.0.attn_v", (width, width)), ("blk.0.attn_output", (width, width)), ("blk.0.ffn_norm", (width,)), ("blk.0.ffn_gate", (mlp, width)),
                        ("blk.0.ffn_up", (mlp, width)), ("blk.0.ffn_down", (width, mlp)), ("output_norm", (width,))]:
        w.add_tensor(name + ".weight", rng.standard_normal(shape, dtype=np.float32).astype(np.float16 if len(shape) > 1 else np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


OUT.mkdir(exist_ok=True)
blocks()
tiny_llama()
tiny_llama31()
