#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernels/cuda/library.h"

namespace tandem::kernels::cuda {
namespace {

namespace fs = std::filesystem;

TEST(CudaLibrary, a_file_that_is_not_there_is_not_found_by_its_name) {
  const auto library = Library::load("/nowhere/libtandem_cuda.so");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), Code::kNotFound);
  EXPECT_NE(library.error().message().find("/nowhere/libtandem_cuda.so"), std::string::npos);
}

TEST(CudaLibrary, a_file_that_is_no_library_and_a_library_that_is_not_ours_are_refused_with_the_reason) {
  const fs::path file = fs::path(testing::TempDir()) / ("not-a-library-" + std::to_string(::getpid()) + ".so");
  std::ofstream(file) << "text";
  const auto text = Library::load(file);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), Code::kUnfit);
  fs::remove(file);

  const fs::path other = "/lib/x86_64-linux-gnu/libm.so.6";
  if (!fs::exists(other)) GTEST_SKIP() << other << " is not there";
  const auto foreign = Library::load(other);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code(), Code::kUnfit);
  EXPECT_NE(foreign.error().message().find("tandem_cuda_version"), std::string::npos) << foreign.error().message();
}

// Where the library was built: without a GPU it loads all the same, and every code has words.
TEST(CudaLibrary, loads_beside_the_executable_lists_devices_and_refuses_null_arguments) {
  const auto library = Library::load();
  if (!library && library.error().code() == Code::kNotFound) GTEST_SKIP() << library.error().message();
  ASSERT_TRUE(library) << library.error().to_string();
  const auto devices = library->devices();
  ASSERT_TRUE(devices) << devices.error().to_string();
  for (const Device& device : *devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.major, 0);
    EXPECT_GT(device.memory_bytes, 0u);
  }
  const Functions& functions = library->functions();
  EXPECT_EQ(functions.device_count(nullptr), kTandemCudaNull);
  EXPECT_EQ(functions.synchronize(nullptr), kTandemCudaNull);
  EXPECT_EQ(functions.gemm(nullptr, nullptr), kTandemCudaNull);
  EXPECT_EQ(functions.attention_float(nullptr, nullptr), kTandemCudaNull);
  int done = 1;
  EXPECT_EQ(functions.done(nullptr, &done), kTandemCudaNull);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(functions.raw_stream(nullptr), nullptr);
  EXPECT_GT(functions.muon_workspace(64, 32), size_t{64} * 32 * 6);
  TandemCudaDevice device;
  const Status missing = library->status("tandem_cuda_device", functions.device(1000, &device));
  EXPECT_EQ(missing.code(), Code::kUnavailable);
  EXPECT_NE(missing.message().find("tandem_cuda_device: "), std::string::npos);
  EXPECT_EQ(library->status("tandem_cuda_gemm", kTandemCudaStride).code(), Code::kInvalid);
  EXPECT_STREQ(functions.error_text(kTandemCudaOk), "no error");
  EXPECT_STREQ(functions.error_text(999), "not a code of this library");
}

}  // namespace
}  // namespace tandem::kernels::cuda
