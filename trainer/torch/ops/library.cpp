// libtandem_ops.so: the operators of torch.ops.tandem, registered as the library is loaded.
//
// Schemas and kernels are by PyTorch's stable ABI, which has neither autograd nor symbolic sizes. Those are in
// libtandem_ops_autograd.so beside it, of one release of PyTorch, which is loaded from here where that release runs.
#include <dlfcn.h>
#include <torch/csrc/stable/library.h>

#include <cstdio>
#include <string>

#include "trainer/torch/ops/logging.h"
#include "trainer/torch/ops/operators.h"

namespace tandem::torch_ops {

STABLE_TORCH_LIBRARY(tandem, m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  m.def("linear_grad_x(Tensor grad, Tensor weight) -> Tensor");
  m.def("linear_grad_weight(Tensor grad, Tensor x) -> Tensor");
  m.def("linear_grad_bias(Tensor grad) -> Tensor");
  m.def("pack_weight(Tensor weight) -> Tensor");
  m.def("linear_packed(Tensor x, Tensor packed, int n, Tensor? bias=None) -> Tensor");
  m.def("rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor");
  m.def("rms_norm_backward(Tensor grad, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)");
  m.def("attention(Tensor query, Tensor key, Tensor value, float? scale=None, int window=0) -> Tensor");
  m.def("attention_forward(Tensor query, Tensor key, Tensor value, float? scale, int window) -> (Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor log_sum, float? "
      "scale, "
      "int window) -> (Tensor, Tensor, Tensor)");
  m.def("lm_head_logprob(Tensor hidden, Tensor weight, Tensor tokens) -> Tensor");
  m.def("lm_head_forward(Tensor hidden, Tensor weight, Tensor tokens) -> (Tensor, Tensor)");
  m.def(
      "lm_head_backward(Tensor grad, Tensor hidden, Tensor weight, Tensor tokens, Tensor log_sum, bool of_weight) -> "
      "(Tensor, Tensor)");
  m.def("quantize_fp8(Tensor x) -> (Tensor, Tensor)");
  m.def("quantize_mxfp8(Tensor x) -> (Tensor, Tensor)");
  m.def("quantize_weight_fp8(Tensor weight) -> (Tensor, Tensor)");
  m.def("dequantize(Tensor codes, Tensor scales, int block=128, int block_rows=1) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(tandem, CPU, m) {
  m.impl("linear", TORCH_BOX(&linear));
  m.impl("linear_grad_x", TORCH_BOX(&linear_grad_x));
  m.impl("linear_grad_weight", TORCH_BOX(&linear_grad_weight));
  m.impl("linear_grad_bias", TORCH_BOX(&linear_grad_bias));
  m.impl("pack_weight", TORCH_BOX(&pack_weight));
  m.impl("linear_packed", TORCH_BOX(&linear_packed));
  m.impl("rms_norm", TORCH_BOX(&rms_norm));
  m.impl("rms_norm_backward", TORCH_BOX(&rms_norm_backward));
  m.impl("attention", TORCH_BOX(&attention));
  m.impl("attention_forward", TORCH_BOX(&attention_forward));
  m.impl("attention_backward", TORCH_BOX(&attention_backward));
  m.impl("lm_head_logprob", TORCH_BOX(&lm_head_logprob));
  m.impl("lm_head_forward", TORCH_BOX(&lm_head_forward));
  m.impl("lm_head_backward", TORCH_BOX(&lm_head_backward));
  m.impl("quantize_fp8", TORCH_BOX(&quantize_fp8));
  m.impl("quantize_mxfp8", TORCH_BOX(&quantize_mxfp8));
  m.impl("quantize_weight_fp8", TORCH_BOX(&quantize_weight_fp8));
  m.impl("dequantize", TORCH_BOX(&dequantize));
}

namespace {

constexpr const char* kAutograd = "libtandem_ops_autograd.so";

// The release of an ABI version, whose bytes from the top are major, minor, patch.
std::string release_of(uint64_t version) {
  return std::to_string(version >> 56 & 0xff) + "." + std::to_string(version >> 48 & 0xff) + "." +
         std::to_string(version >> 40 & 0xff);
}

// A load that cannot say why it failed would end the process: what is missing is told, and kernels work without it.
bool load_autograd() {
  const std::string built_with = release_of(TORCH_ABI_VERSION), here = release_of(aoti_torch_abi_version());
  if (built_with != here) {
    std::fprintf(
        stderr,
        "libtandem_ops.so: built with PyTorch %s, and this is %s: its operators work without autograd and meta "
        "functions; scripts/with-torch builds it for another release by TANDEM_TORCH\n",
        built_with.c_str(), here.c_str());
    return false;
  }
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&load_autograd), &info) == 0 || info.dli_fname == nullptr) return false;
  std::string path = info.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + kAutograd;
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return true;
  const char* reason = ::dlerror();
  std::fprintf(stderr, "libtandem_ops.so: without autograd and meta functions: %s\n",
               reason != nullptr ? reason : path.c_str());
  return false;
}

// What kernels log is not to stand between what the user's program prints.
[[maybe_unused]] const bool logs_go_to_stderr = (log_to_stderr(), true);

// Behind the registrations above, which it adds to.
[[maybe_unused]] const bool autograd_is_there = load_autograd();

}  // namespace
}  // namespace tandem::torch_ops
