// A model in LibTorch's own operators: what our kernels are held against.
//
// A checkpoint's config and tensors are read by model/; what is computed with them is libtandem_torch.so's, in float32,
// written without our kernels, layouts and orders of additions (trainer/torch/plugin/eager_model.h). Its answers are
// close to ours and never promised to be the same bits.
//
// Thread safety: one call at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/safetensors.h"

struct TandemTorchModel;

namespace tandem::trainer {

struct OracleScores {
  std::vector<float> logprobs;     // of tokens 1..n
  std::vector<int32_t> likeliest;  // after every token
};

class Oracle {
 public:
  // The model of a directory, with the LoRA adapter of another one unless that path is empty. kUnfit, with the line to
  // run, where LibTorch is not there; else the errors of model/.
  static Result<std::unique_ptr<Oracle>> open(const fs::path& directory, const fs::path& adapter, int threads);
  ~Oracle();

  const model::ModelConfig& config() const { return config_; }

  // `tokens`: 1 to config().max_positions ids of the model.
  Result<OracleScores> score(std::span<const int32_t> tokens) const;

 private:
  Oracle(model::ModelConfig config, model::Safetensors checkpoint, std::string place, int threads);
  Status create(std::optional<model::Adapter> adapter);

  const model::ModelConfig config_;
  const model::Safetensors checkpoint_;    // which the library's tensors point into
  std::optional<model::Adapter> adapter_;  // and its factors
  const std::string place_;
  const int threads_;
  TandemTorchModel* model_ = nullptr;
};

}  // namespace tandem::trainer
