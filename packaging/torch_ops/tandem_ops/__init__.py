"""The operators of torch.ops.tandem: batch-invariant kernels for CPUs, with gradients. Importing this registers them.

    import tandem_ops
    tandem_ops.linear(x, weight)    # the same as torch.ops.tandem.linear
"""

from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).with_name("libtandem_ops.so"))


def __getattr__(name):
    try:
        return getattr(torch.ops.tandem, name)
    except AttributeError:
        raise AttributeError(f"module 'tandem_ops' has no operator {name!r}") from None
