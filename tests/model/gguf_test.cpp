#include "model/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "model/gguf_import.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"

namespace tandem::model {
namespace {

const fs::path kGgufGolden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/gguf";

std::span<const float> floats(const TensorView& view) {
  return {reinterpret_cast<const float*>(view.bytes.data()), static_cast<size_t>(view.elements())};
}

class GgufTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("tandem-gguf-{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(GgufTest, every_block_format_stands_for_the_numbers_of_the_reference) {
  const auto gguf = Gguf::open(kGgufGolden / "blocks.gguf");
  ASSERT_TRUE(gguf) << gguf.error().to_string();
  const auto expected = Safetensors::open(kGgufGolden / "blocks.safetensors");
  ASSERT_TRUE(expected) << expected.error().to_string();
  ASSERT_EQ(gguf->tensors().size(), 11u);
  for (const auto& [name, tensor] : gguf->tensors()) {
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{3, 512})) << name;
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    dequantise(tensor, values);
    const auto reference = floats(*expected->get(name));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], reference[i]) << name << "[" << i << "]";
    }
  }
}

TEST_F(GgufTest, an_imported_llama_has_the_weights_that_it_was_converted_from) {
  const auto summary = import_gguf(kGgufGolden / "tiny-llama.gguf", folder_);
  ASSERT_TRUE(summary) << summary.error().to_string();
  const auto config = read_config(folder_);
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->heads, 6);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_size, 4);
  EXPECT_EQ(config->rope.theta, 5000);
  EXPECT_EQ(config->norm_epsilon, 1e-5);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->eos_tokens, std::vector<TokenId>{0});
  const auto expected = Safetensors::open(kGgufGolden / "tiny-llama.safetensors");
  const auto written = Safetensors::open(folder_);
  ASSERT_TRUE(expected && written);
  EXPECT_EQ(written->tensors().size(), expected->tensors().size());
  for (const auto& [name, tensor] : expected->tensors()) {
    const auto view = written->get(name);
    ASSERT_TRUE(view) << view.error().to_string();
    ASSERT_EQ(view->shape, tensor.shape) << name;
    EXPECT_EQ(view->dtype, DType::kBF16);
    const auto reference = floats(tensor);
    for (size_t i = 0; i < reference.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, view->bytes.data() + i * 2, 2);
      ASSERT_EQ(bits, float_to_bf16(reference[i])) << name << "[" << i << "]";
    }
  }
  const auto tokenizer = parse_json(*read_file(folder_ / "tokenizer_config.json"));
  EXPECT_EQ((*tokenizer)["chat_template"], "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}");
  EXPECT_EQ((*tokenizer)["eos_token"], "<|end|>");
}

TEST_F(GgufTest, the_rope_of_llama_3_is_read_from_its_factors_and_tokens_around_texts_are_kept) {
  const auto summary = import_gguf(kGgufGolden / "tiny-llama31.gguf", folder_);
  ASSERT_TRUE(summary) << summary.error().to_string();
  const auto config = read_config(folder_);
  ASSERT_TRUE(config) << config.error().to_string();
  const RopeConfig llama31{.kind = RopeKind::kLlama3, .theta = 500000, .factor = 8, .original_max_positions = 8192};
  EXPECT_EQ(config->rope, llama31);
  EXPECT_EQ(config->eos_tokens, (std::vector<TokenId>{1, 2}));
  const auto tokenizer = Tokenizer::load(folder_);
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto ids = tokenizer->encode("a", AddSpecial::kYes);
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, (std::vector<TokenId>{0, *tokenizer->find("a"), 1}));

  // Factors that no such setting gives: the last is half of what it was.
  std::string bytes = *read_file(kGgufGolden / "tiny-llama31.gguf");
  const auto gguf = Gguf::open(kGgufGolden / "tiny-llama31.gguf");
  ASSERT_TRUE(gguf);
  const auto factors = gguf->tensors().at("rope_freqs.weight").bytes;
  const size_t at = bytes.find(std::string_view(reinterpret_cast<const char*>(factors.data()), factors.size()));
  ASSERT_NE(at, std::string::npos);
  const float half = 4;
  std::memcpy(bytes.data() + at + factors.size() - sizeof half, &half, sizeof half);
  ASSERT_TRUE(write_file(folder_ / "x.gguf", bytes));
  const auto refused = import_gguf(folder_ / "x.gguf", folder_ / "out");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("rope_freqs.weight"), std::string::npos) << refused.error().message();
}

// Replaces the first occurrence of `from`, of the same length.
std::string patched(std::string bytes, std::string_view from, std::string_view to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(at, from.size(), to);
}

TEST_F(GgufTest, what_cannot_be_imported_is_named_before_anything_is_written) {
  const std::string whole = *read_file(kGgufGolden / "tiny-llama.gguf");
  const struct {
    std::string bytes;
    const char* expected;
  } cases[] = {
      {patched(whole, "GGUF", "GGML"), "not a GGUF file"},
      {patched(whole, std::string("GGUF\3\0\0\0", 8), std::string("GGUF\1\0\0\0", 8)), "version 1"},
      {patched(whole, "blk.1.ffn_down", "blk.1.ffn_dawn"), "blk.1.ffn_dawn.weight is of no known use"},
      {patched(whole, "blk.1.ffn_down", "blk.7.ffn_down"),
       "1 tensors are missing: model.layers.1.mlp.down_proj.weight"},
      {patched(whole, "blk.1.ffn_down", "blk.0.ffn_down"), "stands twice"},
      {patched(whole, "smollm", "martin"), "\"martin\" is not one of smollm"},
      {patched(whole, "llama.block_count", "llama.block_kount"), "lacks num_hidden_layers"},
      {whole.substr(0, whole.size() - 1), "cut short"},
      {whole.substr(0, 900), "in the middle of its directory"},
  };
  for (const auto& item : cases) {
    ASSERT_TRUE(write_file(folder_ / "x.gguf", item.bytes));
    const auto summary = import_gguf(folder_ / "x.gguf", folder_ / "out");
    ASSERT_FALSE(summary) << item.expected;
    EXPECT_NE(summary.error().message().find(item.expected), std::string::npos) << summary.error().message();
    EXPECT_NE(summary.error().message().find("x.gguf"), std::string::npos) << summary.error().message();
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  }
}

TEST_F(GgufTest, lengths_whose_product_is_no_signed_number_are_refused_also_beside_a_zero) {
  std::string bytes = "GGUF";
  const auto put = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(uint32_t{3});
  put(uint64_t{1});  // tensor
  put(uint64_t{0});
  put(uint64_t{1});
  bytes += 'x';
  put(uint32_t{3});
  for (const uint64_t length : {uint64_t{0}, uint64_t{1} << 46, uint64_t{1} << 17}) put(length);
  put(uint32_t{0});
  put(uint64_t{0});
  bytes.resize(256);
  ASSERT_TRUE(write_file(folder_ / "x.gguf", bytes));
  const auto opened = Gguf::open(folder_ / "x.gguf");
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("larger than any file"), std::string::npos) << opened.error().message();
}

TEST_F(GgufTest, wild_counts_and_flipped_bits_give_an_error_or_a_readable_file_and_never_a_crash) {
  const std::string whole = *read_file(kGgufGolden / "tiny-llama.gguf");
  const size_t directory = whole.find("blk.1.ffn_up.weight") + 60;
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    if (random.chance(0.2)) bytes.resize(random.below(bytes.size()));
    for (uint64_t flips = 1 + random.below(3); flips > 0 && !bytes.empty(); --flips) {
      bytes[random.below(std::min(bytes.size(), directory))] ^= static_cast<char>(1 << random.below(8));
    }
    if (random.chance(0.2) && bytes.size() > directory) {
      const uint64_t wild = random.bits() >> random.below(64);
      std::memcpy(bytes.data() + random.below(directory), &wild, sizeof wild);
    }
    ASSERT_TRUE(write_file(folder_ / "x.gguf", bytes));
    const auto summary = import_gguf(folder_ / "x.gguf", folder_ / "out");
    EXPECT_TRUE(summary || !summary.error().message().empty());
  }
}

}  // namespace
}  // namespace tandem::model
