// Each family beside transformers, on tiny checkpoints of odd shapes (tests/golden/make_models.py).
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "model/safetensors.h"
#include "tests/model/engine_logprobs.h"

namespace tandem::model {
namespace {

class Family : public testing::TestWithParam<const char*> {
 protected:
  Weights load(kernels::Stream& stream) {
    auto weights = load_weights(golden_model(GetParam()), false);
    EXPECT_TRUE(weights) << weights.error().to_string();
    EXPECT_TRUE(weights->pack(stream));
    return std::move(*weights);
  }
  static std::vector<int32_t> tokens_of(const Json& item) { return item["tokens"].get<std::vector<int32_t>>(); }
};
INSTANTIATE_TEST_SUITE_P(Golden, Family, testing::ValuesIn(kGoldenModels), model_name);

TEST_P(Family, is_as_near_to_fp32_as_transformers_in_bf16_is) {
  const Json expected = expected_of(GetParam());
  for (const kernels::Isa isa : kernels::supported_isas()) {
    auto stream = std::move(*kernels::Stream::cpu(2, isa));
    const auto weights = load(stream);
    double error = 0;
    size_t count = 0;
    for (const Json& item : expected["cases"]) {
      const auto logprobs = engine_logprobs(stream, weights, tokens_of(item), 512);
      ASSERT_EQ(logprobs.size(), item["logprobs"].size());
      for (size_t i = 0; i < logprobs.size(); ++i) error += std::abs(logprobs[i] - item["logprobs"][i].get<double>());
      count += logprobs.size();
    }
    error /= static_cast<double>(count);
    EXPECT_LE(error, 2 * expected["bf16_error"].get<double>()) << to_string(isa);
    RecordProperty(std::string(to_string(isa)),
                   fmt::format("{:.5f} of {:.5f}", error, expected["bf16_error"].get<double>()));
  }
}

// One rounding of fp32 is 2^-24; a hundred of them in a row are what 1e-4 leaves room for.
TEST_P(Family, in_float32_is_fp32_and_the_same_bits_with_every_instruction_set_and_cut) {
  const Json cases = expected_of(GetParam())["cases"];
  std::vector<float> first;
  for (const kernels::Isa isa : kernels::supported_isas()) {
    auto stream = std::move(*kernels::Stream::cpu(2, isa));
    auto weights = std::move(*load_weights(golden_model(GetParam()), false, WeightFormat::kFloat32));
    ASSERT_TRUE(weights.pack(stream));
    for (const Json& item : cases) {
      const auto logprobs = engine_logprobs(stream, weights, tokens_of(item), 512);
      for (size_t i = 0; i < logprobs.size(); ++i) {
        ASSERT_NEAR(logprobs[i], item["logprobs"][i].get<double>(), 1e-4) << to_string(isa) << " at " << i;
      }
      EXPECT_EQ(engine_logprobs(stream, weights, tokens_of(item), 37), logprobs) << to_string(isa);
      if (item != cases.back()) continue;
      if (first.empty()) first = logprobs;
      EXPECT_EQ(logprobs, first) << to_string(isa);
    }
  }
}

TEST_P(Family, gives_a_sequence_the_same_bits_whatever_chunks_threads_and_neighbours) {
  auto one = std::move(*kernels::Stream::cpu(1)), three = std::move(*kernels::Stream::cpu(3));
  const auto weights = load(one);
  const Json cases = expected_of(GetParam())["cases"];
  const auto tokens = tokens_of(cases.back());
  const auto reference = engine_logprobs(one, weights, tokens, 512);
  const std::vector<std::vector<int32_t>> neighbours = {tokens_of(cases[1]), tokens_of(cases[2])};
  for (const size_t chunk : {1, 37, 512}) {
    EXPECT_EQ(engine_logprobs(three, weights, tokens, chunk), reference) << "chunk " << chunk;
    EXPECT_EQ(engine_logprobs(three, weights, tokens, chunk, neighbours), reference) << "chunk " << chunk;
  }
}

TEST_P(Family, is_written_with_the_names_and_numbers_that_it_was_read_with) {
  const fs::path out = fs::temp_directory_path() / fmt::format("tandem-family-{}-{}", GetParam(), ::getpid());
  const auto weights = load_weights(golden_model(GetParam()), false);
  ASSERT_TRUE(weights) << weights.error().to_string();
  ASSERT_TRUE(save_weights(*weights, out, golden_model(GetParam())));
  const auto before = Safetensors::open(golden_model(GetParam())), after = Safetensors::open(out);
  ASSERT_TRUE(before && after);
  ASSERT_EQ(before->tensors().size(), after->tensors().size());
  for (const auto& [name, tensor] : before->tensors()) {
    const auto written = after->get(name);
    ASSERT_TRUE(written) << name;
    EXPECT_EQ(written->shape, tensor.shape) << name;
    EXPECT_TRUE(std::ranges::equal(written->bytes, tensor.bytes)) << name;
  }
  EXPECT_EQ(*read_config(out), weights->config());
  fs::remove_all(out);
}

TEST_P(Family, counts_as_many_parameters_as_the_checkpoint_holds) {
  const auto config = read_config(golden_model(GetParam()));
  ASSERT_TRUE(config) << config.error().to_string();
  const auto checkpoint = Safetensors::open(golden_model(GetParam()));
  int64_t held = 0;
  for (const auto& [name, tensor] : checkpoint->tensors()) held += tensor.elements();
  EXPECT_EQ(parameter_count(*config), held);
  std::vector<std::string> names;
  for (const TensorSpec& spec : tensor_specs(*config)) names.push_back(spec.name);
  EXPECT_EQ(names.size(), checkpoint->tensors().size());
  EXPECT_TRUE(checkpoint->require(names));
}

}  // namespace
}  // namespace tandem::model
