// Reading a checkpoint: from the disk and from memory, beside the same files read and looked at by nobody.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bench/measure.h"

namespace tandem::bench {

namespace {

Result<std::vector<fs::path>> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  if (files.empty()) return fail(Status::not_found("there are no safetensors").at(directory.string()));
  return files;
}

// So that the next reader waits for the disk. The kernel keeps what others have mapped.
Status forget(const std::vector<fs::path>& files) {
  for (const auto& path : files) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || ::fdatasync(file.get()) != 0) return Status::from_errno("open " + path.string(), errno);
    if (const int failed = ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED); failed != 0)
      return Status::from_errno("posix_fadvise " + path.string(), failed);
  }
  return {};
}

Result<uint64_t> read_through(const std::vector<fs::path>& files) {
  std::vector<char> piece(1 << 20);
  uint64_t bytes = 0;
  for (const auto& path : files) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return fail(Status::from_errno("open " + path.string(), errno));
    ssize_t got = 0;
    while ((got = ::read(file.get(), piece.data(), piece.size())) > 0) bytes += static_cast<uint64_t>(got);
    if (got < 0) return fail(Status::from_errno("read " + path.string(), errno));
  }
  return bytes;
}

}  // namespace

Result<std::vector<Figure>> bench_checkpoint(const Settings& settings) {
  if (settings.model.empty())
    return fail(Status::invalid("there is no checkpoint to read").hint("name a model directory with --model"));
  const auto files = TRY(files_of(settings.model));
  const double bytes = static_cast<double>(TRY(read_through(files)));
  const auto read = [&]() -> Status { return TRY(read_through(files)), Status(); };
  const auto load = [&]() -> Status { return TRY(model::load_weights(settings.model, false)), Status(); };
  std::vector<Figure> figures;
  for (const bool cold : {true, false}) {
    const auto speed = [&](const auto& work) -> Result<double> {
      using Clock = std::chrono::steady_clock;
      std::vector<double> rounds;
      for (double total = 0; rounds.size() < 3 || total < settings.seconds; total += rounds.back()) {
        if (cold) TRY(forget(files));
        const auto start = Clock::now();
        TRY(work());
        rounds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
      std::sort(rounds.begin(), rounds.end());
      return bytes / rounds[rounds.size() / 2] / 1e9;
    };
    const double limit = TRY(speed(read));
    const double loaded = TRY(speed(load));
    figures.push_back({cold ? "weights, from the disk" : "weights, from the page cache", loaded, "GB/s", limit,
                       cold ? "disk" : "read()"});
  }
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  auto weights = TRY(model::load_weights(settings.model, false));
  const double packing = TRY(median_seconds(settings.seconds, [&] { return weights.pack(stream); }));
  figures.push_back({"panels of them", static_cast<double>(weights.slice().bytes.size()) / packing / 1e9, "GB/s"});
  return figures;
}

}  // namespace tandem::bench
