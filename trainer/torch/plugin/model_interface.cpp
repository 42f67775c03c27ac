// The C interface over the model in LibTorch's operators.
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "trainer/torch/interface/tandem_torch_model.h"
#include "trainer/torch/plugin/eager_model.h"
#include "trainer/torch/plugin/errors.h"

struct TandemTorchModel {
  tandem::torch_plugin::EagerModel model;
};

extern "C" {

TANDEM_TORCH_EXPORT TandemTorchModel* tandem_torch_model(const TandemTorchShape* shape,
                                                         const TandemTorchTensor* tensors, size_t count, char* error,
                                                         size_t error_size) {
  using namespace tandem::torch_plugin;
  return answer_or(static_cast<TandemTorchModel*>(nullptr), error, error_size,
                   [&] { return new TandemTorchModel{EagerModel(*shape, tensors, count)}; });
}

TANDEM_TORCH_EXPORT int tandem_torch_score(const TandemTorchModel* model, const int32_t* tokens, int64_t count,
                                           int threads, float* logprobs, int32_t* likeliest, char* error,
                                           size_t error_size) {
  using namespace tandem::torch_plugin;
  return answer_or(-1, error, error_size, [&] {
    const c10::InferenceMode without_gradients;
    at::set_num_threads(threads);
    const auto ids = at::from_blob(const_cast<int32_t*>(tokens), {count}, at::kInt).to(at::kLong);
    const auto scores = model->model.score(ids);
    std::copy_n(scores.logprobs.const_data_ptr<float>(), count - 1, logprobs);
    std::copy_n(scores.likeliest.to(at::kInt).const_data_ptr<int32_t>(), count, likeliest);
    return 0;
  });
}

TANDEM_TORCH_EXPORT void tandem_torch_free_model(TandemTorchModel* model) { delete model; }
}
