#include "model/encoder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "kernels/stream.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"

namespace tandem::model {
namespace {

const fs::path kEncoderGolden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/encoders";

Json json_of(const fs::path& path) { return *parse_json(*read_file(path)); }

class EncoderTest : public testing::TestWithParam<const char*> {
 protected:
  fs::path folder() const { return kEncoderGolden / GetParam(); }
  Encoder load(kernels::Stream& stream) const {
    auto encoder = Encoder::load(folder(), stream);
    EXPECT_TRUE(encoder) << encoder.error().to_string();
    return std::move(*encoder);
  }
  std::vector<std::vector<TokenId>> texts() const {
    std::vector<std::vector<TokenId>> texts;
    for (const Json& item : json_of(folder() / "expected.json"))
      texts.push_back(item["tokens"].get<std::vector<int>>());
    return texts;
  }
};

TEST_P(EncoderTest, gives_the_embeddings_of_transformers_with_every_instruction_set_the_same_bits) {
  const Json expected = json_of(folder() / "expected.json");
  std::vector<float> first;
  for (const kernels::Isa isa : kernels::supported_isas()) {
    auto stream = *kernels::Stream::cpu(2, isa);
    const Encoder encoder = load(stream);
    const auto width = static_cast<size_t>(encoder.config().width);
    const auto embeddings = encoder.embed(stream, texts());
    ASSERT_TRUE(embeddings) << embeddings.error().to_string();
    ASSERT_EQ(embeddings->size(), expected.size() * width);
    for (size_t text = 0; text < expected.size(); ++text) {
      double dot = 0, length = 0;
      for (size_t i = 0; i < width; ++i) {
        const double ours = (*embeddings)[text * width + i], theirs = expected[text]["embedding"][i].get<double>();
        ASSERT_NEAR(ours, theirs, 2e-6) << expected[text]["text"] << " at " << i;
        dot += ours * theirs;
        length += ours * ours;
      }
      EXPECT_GT(dot, 0.999999);
      EXPECT_NEAR(length, 1, 1e-6);
    }
    if (first.empty()) first = *embeddings;
    EXPECT_EQ(*embeddings, first) << to_string(isa);
  }
}

TEST_P(EncoderTest, a_text_has_the_same_bits_alone_and_in_any_batch) {
  auto one = *kernels::Stream::cpu(1), three = *kernels::Stream::cpu(3);
  const Encoder encoder = load(one);
  auto batch = texts();
  const auto together = *encoder.embed(three, batch);
  const auto width = static_cast<size_t>(encoder.config().width);
  for (size_t text = 0; text < batch.size(); ++text) {
    const auto alone = *encoder.embed(one, std::span(batch).subspan(text, 1));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + text * width)) << text;
  }
  std::reverse(batch.begin(), batch.end());
  const auto reversed = *encoder.embed(three, batch);
  for (size_t text = 0; text < batch.size(); ++text) {
    EXPECT_TRUE(std::equal(reversed.begin() + text * width, reversed.begin() + (text + 1) * width,
                           together.begin() + (batch.size() - 1 - text) * width))
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Encoders, EncoderTest, testing::Values("sentences", "masked-lm", "unigram"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Encoder, texts_that_it_cannot_take_are_refused) {
  auto stream = *kernels::Stream::cpu(1);
  const Encoder encoder = *Encoder::load(kEncoderGolden / "sentences", stream);
  const auto refusal = [&](std::vector<TokenId> text) { return encoder.embed(stream, {&text, 1}).error().message(); };
  EXPECT_EQ(refusal({}), "a text without tokens has no embedding");
  EXPECT_EQ(refusal(std::vector<TokenId>(81, 5)), "a text of 81 tokens is longer than the 80 positions");
  EXPECT_EQ(refusal({1, 520}), "embed: token 520 at row 1 is outside the vocabulary of 520");
  EXPECT_TRUE(encoder.embed(stream, {})->empty());
}

// A copy of an encoder that a test may damage.
class EncoderFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tandem-encoder-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::copy(kEncoderGolden / "sentences", folder_, fs::copy_options::recursive);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void set(const char* file, const char* key, const Json& value) {
    Json json = json_of(folder_ / file);
    json[key] = value;
    std::ofstream(folder_ / file) << json.dump();
  }
  std::string refusal() {
    auto stream = *kernels::Stream::cpu(1);
    const auto encoder = Encoder::load(folder_, stream);
    if (encoder) return "none";
    const std::string message = encoder.error().message();
    return message.substr(message.starts_with(folder_.string()) ? folder_.string().size() + 1 : 0);
  }

  fs::path folder_;
};

TEST_F(EncoderFiles, what_would_change_an_embedding_is_refused_by_name) {
  set("config.json", "hidden_act", "swish");
  EXPECT_EQ(refusal(), "config.json: hidden_act \"swish\" is not gelu");
  set("config.json", "hidden_act", "gelu");
  set("config.json", "position_embedding_type", "relative_key");
  EXPECT_EQ(refusal(), "config.json: position_embedding_type \"relative_key\" is not absolute");
  set("config.json", "position_embedding_type", nullptr);
  set("config.json", "is_decoder", true);
  EXPECT_EQ(refusal(), "config.json: is_decoder is true, which encoders are not");
  set("config.json", "is_decoder", false);
  set("config.json", "num_attention_heads", 4);
  EXPECT_EQ(refusal(), "config.json: hidden_size 30 in num_attention_heads 4 gives no heads of 1 to 256");
  set("config.json", "num_attention_heads", 3);
  set("config.json", "model_type", "roberta");
  EXPECT_EQ(refusal(), "config.json: model_type \"roberta\" is not bert");
  set("config.json", "model_type", "bert");
  EXPECT_EQ(refusal(), "none");
  set("1_Pooling/config.json", "pooling_mode_cls_token", true);
  EXPECT_EQ(refusal(),
            "1_Pooling/config.json: pooling_mode_cls_token is true: only the mean of all tokens is computed");
  set("1_Pooling/config.json", "pooling_mode_cls_token", false);
  set("sentence_bert_config.json", "do_lower_case", true);
  EXPECT_EQ(refusal(), "sentence_bert_config.json: do_lower_case is true: only the tokenizer lowers");
  std::ofstream(folder_ / "modules.json") << R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])";
  EXPECT_EQ(
      refusal(),
      "modules.json: the module {\"type\":\"sentence_transformers.models.Dense\",\"path\":\"2_Dense\"} is not one "
      "of Transformer, Pooling, Normalize");
  std::ofstream(folder_ / "modules.json") << R"([{"type": "sentence_transformers.models.Pooling", "path": "../x"}])";
  EXPECT_EQ(refusal(), "modules.json: the path of Pooling is not the name of a folder");
}

TEST_F(EncoderFiles, the_longest_text_is_what_sentence_transformers_takes) {
  EXPECT_EQ(read_encoder_config(folder_)->longest, 70);
  set("sentence_bert_config.json", "max_seq_length", 1000);
  EXPECT_EQ(read_encoder_config(folder_)->longest, 80);
  fs::remove(folder_ / "sentence_bert_config.json");
  std::ofstream(folder_ / "tokenizer_config.json") << R"({"model_max_length": 33})";
  EXPECT_EQ(read_encoder_config(folder_)->longest, 33);
  std::ofstream(folder_ / "tokenizer_config.json") << R"({"model_max_length": 1000000000000000019884624838656})";
  EXPECT_EQ(read_encoder_config(folder_)->longest, 80);
}

TEST_F(EncoderFiles, missing_tensors_are_all_named_and_wrong_shapes_too) {
  const auto whole = *Safetensors::open(kEncoderGolden / "sentences");
  std::vector<NamedTensor> left;
  for (const auto& [name, tensor] : whole.tensors()) {
    if (name.find("layer.1.output") == std::string::npos) left.push_back({name, tensor});
  }
  ASSERT_TRUE(write_safetensors(folder_ / "model.safetensors", left));
  const std::string missing = refusal();
  for (const char* name : {"encoder.layer.1.output.dense.weight", "encoder.layer.1.output.dense.bias",
                           "encoder.layer.1.output.LayerNorm.weight", "encoder.layer.1.output.LayerNorm.bias"}) {
    EXPECT_NE(missing.find(name), std::string::npos) << missing;
  }
  fs::copy_file(kEncoderGolden / "sentences/model.safetensors", folder_ / "model.safetensors",
                fs::copy_options::overwrite_existing);
  set("config.json", "vocab_size", 1 << 26);
  EXPECT_EQ(refusal(), "tensor embeddings.word_embeddings.weight is [520, 30], expected [67108864, 30]");
}

}  // namespace
}  // namespace tandem::model
