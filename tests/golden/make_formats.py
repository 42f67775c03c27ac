"""Writes formats.jsonl: what the codes of the small formats mean, and how floats round to them, by ml_dtypes.

One line a format. `decoded` is the bits of each code as a float32, in hexadecimal; `encoded` the codes of the probes that
tests/kernels/formats_test.cpp makes in the same order; of bf16, which has 65536 codes, XXH3's 128 bits of the same bytes.
What ml_dtypes does otherwise is changed here: E4M3 saturates, its NaN is 0x7f, E8M0 rounds up.

Needs ml_dtypes, numpy and xxhash.  python tests/golden/make_formats.py
"""

import json
import pathlib

import ml_dtypes
import numpy as np
import xxhash

np.seterr(all="ignore")
# dtype, largest finite code, what it saturates to
FORMATS = {
    "bf16": (ml_dtypes.bfloat16, 0x7F7F, None),
    "e4m3": (ml_dtypes.float8_e4m3fn, 0x7E, 448),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 0xFE, None),
}
SPECIAL = [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]


def floats(bits):
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def probes(values):
    """Each value and the middle between it and the next (of the last, as far beyond it), each with the floats beside it;
    special ones; then all negated."""
    found = []
    for i, value in enumerate(values):
        step = float(values[i + 1]) - float(value) if i + 1 < len(values) else float(value) - float(values[i - 1])
        for point in (value, np.float32(float(value) + step / 2)):
            bits = int(point.view(np.uint32))
            found += [bits - 1 if bits else 0, bits, bits + 1]
    found = np.array(found + SPECIAL, dtype=np.uint32)
    return floats(np.concatenate([found, found | np.uint32(0x80000000)]))


def encode(x, name, dtype, code_type, limit):
    nan = np.isnan(x)
    if name == "e8m0":
        # Not below x: one code up where ml_dtypes went down. Saturating; negative is NaN, zero the least.
        safe = np.where(nan | (x < 0) | np.isinf(x), np.float32(1), np.clip(x, 2.0**-127, 2.0**127)).astype(np.float32)
        codes = safe.astype(dtype).view(np.uint8)
        value = floats(np.where(codes == 0, 0x00400000, codes.astype(np.uint32) << 23))
        codes = codes + (value < safe)
        codes = np.where(np.isinf(x) & (x > 0), 0xFE, codes)
        return np.where(nan | (x < 0), 0xFF, codes).astype(np.uint8)
    if limit:
        x = np.clip(x, -limit, limit)
    codes = x.astype(dtype).view(code_type)
    if name == "bf16":
        return codes
    return np.where(nan, 0x7F, codes).astype(code_type)


lines = []
for name, (dtype, largest, limit) in FORMATS.items():
    code_type = np.uint16 if name == "bf16" else np.uint8
    count = 1 << (8 * code_type().itemsize)
    decoded = np.arange(count, dtype=code_type).view(dtype).astype(np.float32).view(np.uint32)
    if name != "bf16":  # one NaN of float for all, as in the headers
        decoded = np.where(np.isnan(decoded.view(np.float32)), np.uint32(0x7FC00000), decoded).astype(np.uint32)
    x = probes(floats(decoded[: largest + 1]))
    encoded = encode(x, name, dtype, code_type, limit)
    line = {"format": name, "probes": len(x)}
    if name == "bf16":
        line["decoded"] = xxhash.xxh3_128_hexdigest(decoded.tobytes())
        line["encoded"] = xxhash.xxh3_128_hexdigest(encoded.tobytes())
    else:
        line["decoded"] = " ".join(f"{bits:x}" for bits in decoded)
        line["encoded"] = encoded.tobytes().hex()
    lines.append(json.dumps(line))
pathlib.Path(__file__).with_name("formats.jsonl").write_text("\n".join(lines) + "\n")
