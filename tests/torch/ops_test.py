"""torch.ops.tandem: PyTorch's own check of operators, values and gradients beside float32, bits beside a row alone.

    python3 tests/torch/ops_test.py LIBTANDEM_OPS_SO

Ends with 77 where this interpreter has no PyTorch that runs: ctest takes it for skipped.
"""
import multiprocessing
import sys
import unittest

library = sys.argv.pop(1)
try:
    import torch
    import torch.nn.functional as F
except (ImportError, OSError, ValueError) as error:
    print(f"{sys.executable} has no PyTorch that runs: {error}")
    sys.exit(77)

torch.ops.load_library(library)
tandem = torch.ops.tandem
OPCHECK = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def draw(*shape, seed=1, scale=1.0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).bfloat16().requires_grad_(grad)


def heads(batch, positions, count, size, seed, grad=False):
    """As a model has them: [batch, heads, positions, size] over memory of [batch, positions, heads, size]."""
    return draw(batch, positions, count, size, seed=seed).transpose(1, 2).requires_grad_(grad)


def attention_reference(query, key, value, window=0, scale=None):
    """In float32, by a mask."""
    asked, seen = query.shape[2], key.shape[2]
    at, of = torch.arange(seen - asked, seen)[:, None], torch.arange(seen)[None]
    mask = (of <= at) & ((of > at - window) if window else True)
    shared = query.shape[1] // key.shape[1]
    key, value = (x.float().repeat_interleave(shared, 1) for x in (key, value))
    return F.scaled_dot_product_attention(query.float(), key, value, attn_mask=mask, scale=scale)


def logprob_reference(hidden, weight, tokens):
    return (hidden.float() @ weight.float().T).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


class Operators(unittest.TestCase):
    def near(self, found, expected, bound):
        """By the norm of the difference, as a share of what is right, or of a hundredth where that is nearly nothing."""
        self.assertEqual(found.shape, expected.shape)
        floor = 0.01 * expected.numel() ** 0.5
        error = (found.double() - expected.double()).norm() / expected.double().norm().clamp(min=floor)
        self.assertLess(error.item(), bound)

    def gradients_near(self, ours, reference, leaves, bound=0.01):
        # A gradient that depends on every element of the result.
        result, expected = ours(*leaves), reference(*leaves)
        self.near(result, expected, bound)
        grad = draw(*result.shape, seed=9).to(result.dtype)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = torch.autograd.grad(result, wanted, grad)
        right = torch.autograd.grad(expected, wanted, grad.to(expected.dtype))
        for one, other, leaf in zip(found, right, wanted, strict=True):
            self.assertEqual(one.dtype, leaf.dtype)
            self.near(one, other, bound)

    def test_opcheck_passes_for_every_operator(self):
        tokens = torch.tensor([[3, 0, 7], [1, 2, 36]])
        q, k, v = heads(2, 5, 4, 16, 1), heads(2, 5, 2, 16, 2), heads(2, 5, 2, 24, 3)
        out, log_sum = tandem.attention_forward(q, k, v, None, 0)
        logprobs, sums = tandem.lm_head_forward(draw(2, 3, 8), draw(37, 8, seed=2), tokens)
        codes, scales = tandem.quantize_fp8(draw(3, 200))
        samples = {
            "linear": [(draw(3, 8, grad=True), draw(5, 8, seed=2, grad=True)),
                       (draw(2, 3, 8, grad=True), draw(5, 8, seed=2, grad=True), draw(5, seed=3, grad=True)),
                       (draw(3, 8, grad=True), draw(5, 8, seed=2))],
            "linear_grad_x": [(draw(3, 5), draw(5, 8, seed=2))],
            "linear_grad_weight": [(draw(3, 5), draw(3, 8, seed=2))],
            "linear_grad_bias": [(draw(3, 5),)],
            "pack_weight": [(draw(70, 8),)],
            "linear_packed": [(draw(3, 8), tandem.pack_weight(draw(70, 8, seed=2)), 70, draw(70, seed=3))],
            "rms_norm": [(draw(2, 3, 16, grad=True), draw(16, seed=2, grad=True)), (draw(3, 16), draw(16, seed=2), 1e-5)],
            "rms_norm_backward": [(draw(3, 16), draw(3, 16, seed=2), draw(16, seed=3), 1e-6)],
            "attention": [tuple(x.detach().requires_grad_() for x in (q, k, v)), (q, k, v, 0.3, 3)],
            "attention_forward": [(q, k, v, None, 2)],
            "attention_backward": [(draw(2, 4, 5, 24), q, k, v, out, log_sum, None, 0)],
            "lm_head_logprob": [(draw(2, 3, 8, grad=True), draw(37, 8, seed=2, grad=True), tokens)],
            "lm_head_forward": [(draw(2, 3, 8), draw(37, 8, seed=2), tokens)],
            "lm_head_backward": [(logprobs, draw(2, 3, 8), draw(37, 8, seed=2), tokens, sums, True),
                                 (logprobs, draw(2, 3, 8), draw(37, 8, seed=2), tokens, sums, False)],
            "quantize_fp8": [(draw(3, 200),)],
            "quantize_mxfp8": [(draw(2, 3, 72),)],
            "quantize_weight_fp8": [(draw(130, 200),)],
            "dequantize": [(codes, scales)],
        }
        registered = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("tandem::")}
        self.assertEqual(set(samples), registered)
        for name, calls in samples.items():
            for arguments in calls:
                with self.subTest(operator=name):
                    # PyTorch 2.11 has no arithmetic of float8 by which its check of schemas could compare such arguments.
                    checks = [check for check in OPCHECK if (name, check) != ("dequantize", "test_schema")]
                    torch.library.opcheck(getattr(tandem, name).default, arguments, test_utils=checks)

    def test_values_and_gradients_are_those_of_float32(self):
        for m, n, k in ((1, 64, 64), (7, 33, 34), (130, 70, 128)):
            with self.subTest(m=m, n=n, k=k):
                self.gradients_near(tandem.linear, lambda x, w, b: F.linear(x.float(), w.float(), b.float()),
                                    [draw(m, k, grad=True), draw(n, k, seed=2, grad=True), draw(n, seed=3, grad=True)])
        self.gradients_near(lambda x, w: tandem.rms_norm(x, w, 1e-5),
                            lambda x, w: F.rms_norm(x.float(), w.shape, w.float(), 1e-5),
                            [draw(3, 5, 48, grad=True), draw(48, seed=2, grad=True)])
        for positions, window in ((1, 0), (70, 0), (150, 40)):
            with self.subTest(positions=positions, window=window):
                self.gradients_near(lambda *a: tandem.attention(*a, None, window),
                                    lambda *a: attention_reference(*a, window),
                                    [heads(2, positions, 4, 32, 1, True), heads(2, positions, 2, 32, 2, True),
                                     heads(2, positions, 2, 32, 3, True)], 0.02)
        tokens = torch.randint(0, 301, (2, 9), generator=torch.Generator().manual_seed(4))
        self.gradients_near(lambda h, w: tandem.lm_head_logprob(h, w, tokens), lambda h, w: logprob_reference(h, w, tokens),
                            [draw(2, 9, 64, grad=True), draw(301, 64, seed=2, scale=0.2, grad=True)])

    def test_attention_takes_other_sizes_of_values_scales_and_later_queries(self):
        q, k, v = heads(2, 90, 6, 24, 1), heads(2, 90, 3, 24, 2), heads(2, 90, 3, 40, 3)
        self.near(tandem.attention(q, k, v, 0.2, 30), attention_reference(q, k, v, 30, 0.2), 0.01)
        self.near(tandem.attention(q[:, :, 60:], k, v), attention_reference(q[:, :, 60:], k, v), 0.01)

    def test_a_row_has_the_same_bits_alone_and_among_others_whatever_the_threads(self):
        x, weight, bias = draw(200, 128), draw(96, 128, seed=2), draw(96, seed=3)
        hidden, vocabulary = draw(200, 64), draw(501, 64, seed=2)
        tokens = torch.arange(200)
        q, k, v = (heads(3, 140, count, 32, seed) for count, seed in ((4, 1), (2, 2), (2, 3)))
        grad = draw(200, 96, seed=5)
        before = torch.get_num_threads()
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                all_of = tandem.linear(x, weight, bias)
                norms = tandem.rms_norm(x, draw(128, seed=4))
                logprobs = tandem.lm_head_logprob(hidden, vocabulary, tokens)
                attended = tandem.attention(q, k, v)
                grad_x = tandem.linear_grad_x(grad, weight)
                if threads == 1:
                    first = (all_of, norms, logprobs, attended, grad_x)
                for one, other in zip(first, (all_of, norms, logprobs, attended, grad_x)):
                    self.assertTrue(torch.equal(one, other))
                packed = tandem.pack_weight(weight)
                self.assertTrue(torch.equal(tandem.linear_packed(x, packed, 96, bias), all_of))
                for part in (slice(0, 1), slice(17, 18), slice(3, 120)):
                    self.assertTrue(torch.equal(tandem.linear(x[part], weight, bias), all_of[part]))
                    self.assertTrue(torch.equal(tandem.rms_norm(x[part], draw(128, seed=4)), norms[part]))
                    self.assertTrue(torch.equal(tandem.lm_head_logprob(hidden[part], vocabulary, tokens[part]), logprobs[part]))
                    self.assertTrue(torch.equal(tandem.linear_grad_x(grad[part], weight), grad_x[part]))
                for sequence in range(3):
                    alone = tandem.attention(*(x[sequence:sequence + 1] for x in (q, k, v)))
                    self.assertTrue(torch.equal(alone[0], attended[sequence]))
                # A prompt in chunks, and a token at a time: as it was whole.
                for begin, end in ((0, 64), (64, 100), (100, 101), (101, 140)):
                    chunk = tandem.attention(q[:, :, begin:end], k[:, :, :end], v[:, :, :end])
                    self.assertTrue(torch.equal(chunk, attended[:, :, begin:end]))
        finally:
            torch.set_num_threads(before)

    def test_codes_are_those_of_the_rule_and_come_back(self):
        x = draw(3, 300)
        for quantise, block in ((tandem.quantize_fp8, 128), (tandem.quantize_mxfp8, 32)):
            codes, scales = quantise(x)
            self.assertEqual((codes.dtype, scales.dtype), (torch.float8_e4m3fn, torch.float8_e8m0fnu))
            self.assertEqual(scales.shape, (3, -(-300 // block)))
            powers = scales.float().repeat_interleave(block, 1)[:, :300]
            self.assertTrue(torch.equal(codes.float(), (x.float() / powers).to(torch.float8_e4m3fn).float()))
            back = tandem.dequantize(codes, scales, block)
            self.assertTrue(torch.equal(back.float(), codes.float() * powers))
            self.assertLess(((back.float() - x.float()).norm() / x.float().norm()).item(), 0.04)
        codes, scales = tandem.quantize_weight_fp8(draw(130, 140))
        self.assertEqual(scales.shape, (2, 2))
        powers = scales.float().repeat_interleave(128, 0)[:130].repeat_interleave(128, 1)[:, :140]
        self.assertTrue(torch.equal(tandem.dequantize(codes, scales, 128, 128).float(), codes.float() * powers))

    def test_a_model_learns_by_them(self):
        torch.manual_seed(3)
        embedding = torch.randn(50, 32).bfloat16().requires_grad_()
        weights = [(torch.randn(96, 32) / 6).bfloat16().requires_grad_(), (torch.randn(32, 32) / 6).bfloat16().requires_grad_(),
                   torch.ones(32).bfloat16().requires_grad_()]
        tokens = torch.randint(0, 50, (4, 21))
        optimizer = torch.optim.SGD([embedding, *weights], lr=0.5)
        losses = []
        for _ in range(30):
            x = embedding[tokens[:, :-1]]
            query, key, value = tandem.linear(x, weights[0]).view(4, 20, 3, 2, 16).permute(2, 0, 3, 1, 4)
            mixed = tandem.attention(query, key, value).transpose(1, 2).flatten(2)
            x = tandem.rms_norm(x + tandem.linear(mixed, weights[1]), weights[2])
            loss = -tandem.lm_head_logprob(x, embedding, tokens[:, 1:]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 4)

    def test_compiled_by_tracing_it_gives_the_same_bits(self):
        def function(x, weight, norm):
            return tandem.rms_norm(tandem.linear(x, weight), norm).sum()

        leaves = [draw(6, 32, grad=True), draw(16, 32, seed=2, grad=True), draw(16, seed=3, grad=True)]
        expected = torch.autograd.grad(function(*leaves), leaves)
        found = torch.autograd.grad(torch.compile(function, backend="aot_eager", fullgraph=True)(*leaves), leaves)
        for one, other in zip(found, expected, strict=True):
            self.assertTrue(torch.equal(one, other))

    def test_shapes_are_known_without_computing(self):
        meta = tandem.attention(*(x.to("meta") for x in (heads(2, 5, 4, 16, 1), heads(2, 5, 2, 16, 2), heads(2, 5, 2, 24, 3))))
        self.assertEqual((meta.shape, meta.stride(), meta.device.type), ((2, 4, 5, 24), (480, 24, 96, 1), "meta"))

    def test_mistakes_are_named(self):
        for call, words in (
                (lambda: tandem.linear(draw(2, 8).float(), draw(3, 8)), "tandem::linear: x is Float, expected BFloat16"),
                (lambda: tandem.linear(draw(2, 8), draw(3, 6)), "x has 8 columns, but weight has 6"),
                (lambda: tandem.linear(draw(2, 7), draw(3, 7)), "x has 7 columns: an odd number is not supported"),
                (lambda: tandem.linear(draw(2, 8), draw(3, 8), draw(4)), r"bias is not \[3\]"),
                (lambda: tandem.linear_packed(draw(2, 8), draw(64), 3), "packed has 64 elements, a weight of 3 x 8 has 512"),
                (lambda: tandem.rms_norm(draw(2, 8), draw(6)), r"weight is not \[8\]"),
                (lambda: tandem.attention(draw(1, 3, 4, 8), draw(1, 2, 4, 8), draw(1, 2, 4, 8)), "the 3 heads of query are no multiple"),
                (lambda: tandem.attention(draw(1, 2, 5, 8), draw(1, 2, 4, 8), draw(1, 2, 4, 8)), "query has 5 positions, more than the 4"),
                (lambda: tandem.attention(draw(1, 2, 4, 7), draw(1, 2, 4, 7), draw(1, 2, 4, 8)), "head_size"),
                (lambda: tandem.lm_head_logprob(draw(1, 8), draw(5, 8), torch.tensor([5])), "token 5 of row 0 is not one of the 5"),
                (lambda: tandem.dequantize(*tandem.quantize_fp8(draw(2, 200)), 32), "scales has 4 elements, expected 2 x 7"),
                (lambda: tandem.dequantize(*tandem.quantize_fp8(draw(2, 200)), 64), "block is 64, not 128"),
        ):
            with self.assertRaisesRegex(RuntimeError, words):
                call()

    def test_second_derivatives_are_refused(self):
        x = draw(3, 8, grad=True)
        grad, = torch.autograd.grad(tandem.linear(x, draw(5, 8, seed=2, grad=True)).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "linear_grad_x is not implemented"):
            grad.sum().backward()

    def test_a_forked_child_computes_the_same(self):
        x, weight = draw(64, 128), draw(96, 128, seed=2)
        expected = tandem.linear(x, weight)
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=lambda: sender.send(torch.equal(tandem.linear(x, weight), expected)))
        child.start()
        try:
            self.assertTrue(receiver.poll(120), "no answer within two minutes")
            self.assertTrue(receiver.recv())
        finally:
            child.kill()
            child.join()


if __name__ == "__main__":
    unittest.main()
