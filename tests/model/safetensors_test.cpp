#include "model/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"

namespace tandem::model {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tandem-safetensors-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file with this header and `data` bytes behind it.
  Status open_with(const std::string& header, size_t data) {
    uint64_t size = header.size();
    std::string bytes(reinterpret_cast<const char*>(&size), 8);
    bytes += header + std::string(data, 'x');
    EXPECT_TRUE(write_file(folder_ / "x.safetensors", bytes));
    const auto opened = Safetensors::open(folder_ / "x.safetensors");
    return opened ? Status() : opened.error();
  }

  fs::path folder_;
};

template <typename T>
TensorView view_of(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {dtype, std::move(shape), std::as_bytes(std::span(values))};
}

TEST_F(SafetensorsTest, what_was_written_is_read_back_and_aligned) {
  const std::vector<uint16_t> half = {1, 2, 3};
  const std::vector<float> full = {1.5f, -2.5f};
  const std::vector<uint8_t> bytes = {9};
  const std::vector<NamedTensor> tensors = {{"half", view_of(DType::kBF16, {3, 1}, half)},
                                            {"full", view_of(DType::kF32, {2}, full)},
                                            {"empty", view_of(DType::kF32, {0, 7}, std::vector<float>())},
                                            {"scalar", view_of(DType::kU8, {}, bytes)}};
  ASSERT_TRUE(write_safetensors(folder_ / "a.safetensors", tensors)) << "write";
  const auto opened = Safetensors::open(folder_ / "a.safetensors");
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_EQ(opened->tensors().size(), 4u);
  EXPECT_EQ(opened->metadata().at("format"), "pt");
  for (const NamedTensor& tensor : tensors) {
    const auto view = opened->get(tensor.name);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->dtype, tensor.tensor.dtype);
    EXPECT_EQ(view->shape, tensor.tensor.shape);
    EXPECT_TRUE(std::ranges::equal(view->bytes, tensor.tensor.bytes)) << tensor.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->bytes.data()) % bytes_of(view->dtype), 0u) << tensor.name;
  }
}

TEST_F(SafetensorsTest, a_large_checkpoint_is_sharded_and_read_through_its_index) {
  std::vector<std::vector<float>> values(7, std::vector<float>(100, 1.0f));
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i][0] = static_cast<float>(i);
    tensors.push_back({fmt::format("t{}", i), view_of(DType::kF32, {10, 10}, values[i])});
  }
  ASSERT_TRUE(write_checkpoint(folder_, tensors, 1000));
  EXPECT_TRUE(fs::exists(folder_ / "model-00001-of-00004.safetensors"));
  const auto opened = Safetensors::open(folder_);
  ASSERT_TRUE(opened) << opened.error().to_string();
  float first = -1;
  std::memcpy(&first, opened->get("t5")->bytes.data(), sizeof first);
  EXPECT_EQ(first, 5.0f);

  fs::remove(folder_ / "model-00002-of-00004.safetensors");
  fs::remove(folder_ / "model-00003-of-00004.safetensors");
  const auto broken = Safetensors::open(folder_);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message().find("2 of 4 shards are missing: model-00002-of-00004.safetensors, model-00003"),
            std::string::npos)
      << broken.error().message();

  ASSERT_TRUE(write_checkpoint(folder_, tensors));
  EXPECT_TRUE(Safetensors::open(folder_)) << "the old index is gone";
}

TEST_F(SafetensorsTest, all_missing_tensors_are_named_at_once) {
  const std::vector<float> one = {1};
  const std::vector<NamedTensor> tensors = {{"present", view_of(DType::kF32, {1}, one)}};
  ASSERT_TRUE(write_safetensors(folder_ / "a.safetensors", tensors));
  const auto opened = Safetensors::open(folder_ / "a.safetensors");
  const std::vector<std::string> wanted = {"one", "present", "two"};
  const Status status = opened->require(wanted);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("2 tensors are missing: one, two"), std::string::npos) << status.message();
  EXPECT_NE(opened->get("presnet").error().message().find("did you mean present"), std::string::npos);
}

TEST_F(SafetensorsTest, lying_headers_are_refused_with_file_and_tensor) {
  const std::string entry = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_TRUE(open_with("{\"a\":{" + entry + "}}", 8).ok());
  const struct {
    const char* header;
    size_t data;
    const char* expected;
  } cases[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "cut short"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "needs 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "outside"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, "belong to nothing"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8, "twice"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,8]}})", 8, "larger than any file"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8, "larger than any file"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}})", 8, "larger than any file"},
      {R"({"a":{"dtype":"U8","shape":[70368744177664,131072,0],"data_offsets":[0,0]}})", 0, "larger than any file"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "not a whole number"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0.0,8]}})", 8, "not a whole number"},
      {R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8, "not supported"},
      {R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", 8, "not supported"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "lacks one of"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "unknown key"},
      {R"({"a":7})", 8, "is not an object"},
      {R"([1])", 8, "is not an object"},
      {R"({"a")", 8, "header: not JSON"},
      {R"({"__metadata__":{"a":1}})", 0, "is not a string"},
  };
  for (const auto& item : cases) {
    const Status status = open_with(item.header, item.data);
    EXPECT_NE(status.message().find(item.expected), std::string::npos) << item.header << "\n" << status.message();
    EXPECT_NE(status.message().find("x.safetensors"), std::string::npos) << status.message();
  }
}

TEST_F(SafetensorsTest, a_header_longer_than_the_file_is_refused) {
  for (const uint64_t claimed : {uint64_t{9}, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string bytes(reinterpret_cast<const char*>(&claimed), 8);
    ASSERT_TRUE(write_file(folder_ / "x.safetensors", bytes + "{}      "));
    const auto opened = Safetensors::open(folder_ / "x.safetensors");
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().message().find("the header claims"), std::string::npos);
  }
  ASSERT_TRUE(write_file(folder_ / "x.safetensors", "abc"));
  EXPECT_FALSE(Safetensors::open(folder_ / "x.safetensors"));
}

TEST_F(SafetensorsTest, an_index_cannot_name_files_elsewhere_and_pickles_are_refused) {
  ASSERT_TRUE(write_file(folder_ / "pytorch_model.bin", "x"));
  const auto pickle = Safetensors::open(folder_);
  ASSERT_FALSE(pickle);
  EXPECT_NE(pickle.error().to_string().find("save_pretrained"), std::string::npos);
  ASSERT_TRUE(write_file(folder_ / "model.safetensors.index.json", R"({"weight_map":{"a":"../../etc/passwd"}})"));
  const auto elsewhere = Safetensors::open(folder_);
  ASSERT_FALSE(elsewhere);
  EXPECT_NE(elsewhere.error().message().find("not a file name"), std::string::npos);
}

TEST_F(SafetensorsTest, damaged_files_give_an_error_or_a_readable_view_and_never_a_crash) {
  const std::vector<float> values(16, 1.0f);
  const std::vector<NamedTensor> tensors = {{"a.weight", view_of(DType::kF32, {4, 4}, values)},
                                            {"b", view_of(DType::kF32, {16}, values)}};
  ASSERT_TRUE(write_safetensors(folder_ / "a.safetensors", tensors));
  const std::string whole = *read_file(folder_ / "a.safetensors");
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    if (random.chance(0.3)) bytes.resize(random.below(bytes.size()));
    for (uint64_t flips = random.below(4); flips > 0 && !bytes.empty(); --flips) {
      bytes[random.below(std::min<size_t>(bytes.size(), 220))] ^= static_cast<char>(1 << random.below(8));
    }
    ASSERT_TRUE(write_file(folder_ / "b.safetensors", bytes));
    if (const auto opened = Safetensors::open(folder_ / "b.safetensors")) {
      unsigned sum = 0;
      for (const auto& [name, view] : opened->tensors()) {
        for (const std::byte byte : view.bytes) sum += static_cast<unsigned>(byte);
      }
      EXPECT_GE(sum, 0u);
    }
  }
}

}  // namespace
}  // namespace tandem::model
