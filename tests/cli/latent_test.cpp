// Latent attention through the commands: warm-started, trained by a run, exported, and what is said of it.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "model/weights.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

// The tiny model's queries, keys and values as those of a DeepSeek-V3 whose latent holds the values as they are, but
// for its norm, so its episodes are not all alike and a step has something to learn from.
class Latent : public RunTest {
 protected:
  using Values = std::span<const kernels::bf16>;

  static void SetUpTestSuite() {
    RunTest::SetUpTestSuite();
    const auto dense = model::load_weights(root() / "model", false);
    ASSERT_TRUE(dense) << dense.error().to_string();
    std::map<std::string, Values> tensors;
    for (const auto& p : dense->layout().parameters) {
      for (const auto& part : p.parts)
        tensors[part.checkpoint_name] =
            dense->flat().subspan(p.offset + size_t(part.first_row) * p.columns, size_t(part.rows) * p.columns);
    }
    auto config = dense->config();
    const int size = config.head_size;
    config.family = "deepseek_v3";
    config.latent = {.rank = size, .plain = kPlain, .rope_dim = size, .value = size};
    config.kv_heads = config.heads;
    config.head_size = size + kPlain;
    config.experts = {.count = 4, .top_k = 1, .width = 8, .sigmoid = true, .groups = 2, .first = config.layers};
    auto weights = model::Weights::create(config, false);
    ASSERT_TRUE(weights) << weights.error().to_string();
    for (const auto& p : weights->layout().parameters) {
      for (const auto& part : p.parts) {
        const auto to = weights->flat().subspan(p.offset + size_t(part.first_row) * p.columns);
        if (const auto same = tensors.find(part.checkpoint_name);
            same != tensors.end() && !part.checkpoint_name.ends_with("q_proj.weight"))
          std::ranges::copy(same->second, to.begin());
        else
          fill(part.checkpoint_name, tensors, config, to);
      }
    }
    ASSERT_TRUE(model::save_weights(*weights, model_dir(), root() / "model"));
  }
  static fs::path model_dir() { return root() / "latent"; }

 private:
  static constexpr int kPlain = 2;  // elements of a query that are zero

  // The root of the mean square of the values, of states that are as long as a norm leaves them in every direction.
  static float usual_length(std::map<std::string, Values>& tensors, const std::string& name, size_t size) {
    const auto layer = name.substr(0, name.find("self_attn."));
    const Values weight = tensors[layer + "self_attn.v_proj.weight"], norm = tensors[layer + "input_layernorm.weight"];
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i)
      squares += std::pow(kernels::to_float(weight[i]) * kernels::to_float(norm[i % norm.size()]), 2);
    return static_cast<float>(std::sqrt(squares / static_cast<double>(size)));
  }

  static void fill(const std::string& name, std::map<std::string, Values>& tensors, const model::ModelConfig& config,
                   std::span<kernels::bf16> to) {
    const size_t width = config.width, size = config.latent.rank;
    const auto prefix = name.substr(0, name.find("self_attn.") + std::string("self_attn.").size());
    if (name.ends_with("q_proj.weight")) {
      for (int head = 0; head < config.heads; ++head) {
        const Values rows = tensors[name].subspan(head * size * width, size * width);
        auto target = to.begin() + (head * (size + kPlain) + kPlain) * width;
        // The scale of scores is of a longer query.
        for (const kernels::bf16 x : rows)
          *target++ = kernels::to_bf16(kernels::to_float(x) * std::sqrt(1 + kPlain / static_cast<float>(size)));
      }
    } else if (name.ends_with("kv_a_proj_with_mqa.weight")) {
      std::ranges::copy(tensors[prefix + "v_proj.weight"], to.begin());
      std::ranges::copy(tensors[prefix + "k_proj.weight"], to.begin() + size * width);
    } else if (name.ends_with("kv_a_layernorm.weight")) {
      std::fill_n(to.begin(), size, kernels::to_bf16(usual_length(tensors, name, size)));
    } else if (name.ends_with("kv_b_proj.weight")) {
      for (size_t head = 0; head < static_cast<size_t>(config.heads); ++head) {
        for (size_t i = 0; i < size; ++i) to[(head * (kPlain + size) + kPlain + i) * size + i] = kernels::to_bf16(1);
      }
    }
  }
};

TEST_F(Latent, is_counted_by_what_a_token_is_remembered_by) {
  ASSERT_EQ(tandem({"inspect", model_dir(), "--json"}), 0) << text(output());
  const Json found = json(output());
  EXPECT_EQ(found["family"], "deepseek_v3");
  EXPECT_EQ(found["problems"], Json::array());
  // Keys of 64 + 64 elements and values of 64, in two bytes, of two layers.
  EXPECT_EQ(found["memory"]["keys_and_values_per_token"], (128 + 64) * 2 * 2);
  ASSERT_EQ(tandem({"inspect", model_dir()}), 0) << text(output());
  EXPECT_NE(text(output()).find("2 heads of 2 + 64, latents of 64"), std::string::npos) << text(output());
}

TEST_F(Latent, is_warm_started) {
  expect_warm_start_of(model_dir());
  EXPECT_EQ(json(root() / "warm" / "config.json")["kv_lora_rank"], 64);
}

TEST_F(Latent, is_trained_by_a_run_whose_sampler_agrees_with_its_trainer_and_exported) {
  expect_exact_run_of(model_dir());
}

TEST_F(Latent, is_trained_on_a_device_with_the_bits_of_avx2) {
  std::vector<Digest> exports;
  for (const char* device : {"cpu:avx2", "emulated:0"}) {
    const fs::path run_dir = root() / (std::string("on-") + device);
    ASSERT_EQ(run({"run.deterministic=true", "run.steps=1", "trainer.max_lag=0", "tasks.heldout=0", kWithSignal,
                   "model.path=" + model_dir().string(), std::string("device=") + device},
                  run_dir),
              0)
        << text(output());
    expect_same_logprobs(run_dir);
    exports.push_back(export_digest(run_dir));
  }
  EXPECT_EQ(exports[1], exports[0]);
}

}  // namespace
}  // namespace tandem
