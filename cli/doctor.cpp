// `tandem doctor`: what this machine has of what a run needs, a line each, and how to mend what is missing.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <zmq.hpp>

#include "base/json.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "envs/backends/checks.h"
#include "envs/packages/registries.h"
#include "kernels/cuda/library.h"
#include "kernels/stream.h"
#include "trainer/torch/function_loader.h"
#include "wire/address.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using envs::Check;
using envs::CheckLevel;

constexpr double kGiB = 1073741824.0;

Check cores() {
  Check check{"cores"};
  const unsigned count = std::thread::hardware_concurrency();
  check.found = fmt::format("{}", count);
  if (count < 2) {
    check.level = CheckLevel::kWarning;
    check.mend = "a run works on one core, slowly; generation and training cannot overlap";
  }
  return check;
}

Check instruction_sets() {
  Check check{"instruction sets"};
  const auto isas = kernels::supported_isas();
  for (const auto isa : isas) check.found += (check.found.empty() ? "" : ", ") + std::string(kernels::to_string(isa));
  if (isas.empty()) {
    check.level = CheckLevel::kFailed;
    check.found = "neither AVX2 with FMA nor better";
    check.mend = "use a machine with an x86-64 processor of 2013 or later";
  } else if (isas.size() == 1) {
    check.level = CheckLevel::kWarning;
    check.mend = "runs give the same results without AVX-512, at a fraction of the speed";
  }
  return check;
}

// What a container was given, where that is less than the machine has; 0: no limit.
uint64_t memory_limit() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t bytes = 0;
    if (file >> bytes && bytes < (uint64_t{1} << 50)) return bytes;
  }
  return 0;
}

Check memory() {
  Check check{"memory"};
  struct sysinfo info {};
  (void)::sysinfo(&info);
  uint64_t total = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  uint64_t available = static_cast<uint64_t>(info.freeram) * info.mem_unit;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    uint64_t kilobytes = 0;
    if (word == "MemAvailable:" && meminfo >> kilobytes) available = kilobytes * 1024;
  }
  if (const uint64_t limit = memory_limit(); limit > 0) {
    total = std::min(total, limit);
    available = std::min(available, limit);
  }
  check.found = fmt::format("{:.1f} GiB, {:.1f} available", static_cast<double>(total) / kGiB,
                            static_cast<double>(available) / kGiB);
  if (static_cast<double>(available) < 2 * kGiB) {
    check.level = CheckLevel::kFailed;
    check.mend = "at least 2 GiB must be available; end other programs or give the container more";
  } else if (static_cast<double>(total) < 7.5 * kGiB) {
    check.level = CheckLevel::kWarning;
    check.mend = "the quickstart wants 8 GiB; configs/tiny.yaml works with less";
  }
  return check;
}

Check free_space(const char* name, const fs::path& where, double wanted_gib, const char* mend) {
  Check check{name};
  struct statvfs info {};
  if (::statvfs(where.c_str(), &info) != 0) {
    check.level = CheckLevel::kWarning;
    check.found = where.string() + " is not there";
    check.mend = mend;
    return check;
  }
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / kGiB;
  check.found = fmt::format("{:.1f} GiB free in {}", free, where.string());
  if (free < wanted_gib) {
    check.level = CheckLevel::kWarning;
    check.mend = mend;
  }
  return check;
}

std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos) return word;
  }
  return "of unknown version";
}

// What the driver says without CUDA: the models of its GPUs.
std::vector<std::string> driver_gpus() {
  std::vector<std::string> models;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    models.push_back("NVIDIA GPU");
    std::ifstream file(entry.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) models.back() = std::string(trim(std::string_view(line).substr(6)));
    }
  }
  return models;
}

// Nothing here fails: a run uses the processor. What is wrong with a library that is there is worth a warning.
Check gpu() {
  Check check{"GPU"};
  const std::vector<std::string> models = driver_gpus();
  const auto library = kernels::cuda::Library::load();
  const auto devices = library.and_then([](const kernels::cuda::Library& loaded) { return loaded.devices(); });
  const bool listed = devices && !devices->empty();
  if (listed) {
    for (const kernels::cuda::Device& device : *devices) {
      check.found += fmt::format("{} (compute capability {}.{}, {:.1f} GiB), ", device.name, device.major, device.minor,
                                 static_cast<double>(device.memory_bytes) / kGiB);
      if (device.supported()) continue;
      check.level = CheckLevel::kWarning;
      check.mend = library->path() + " has code for compute capability 9.0 and 10.0 alone";
    }
  } else if (!models.empty()) {
    check.found = fmt::format("{} x {}, ", models.size(), models.front());
  }
  check.found += listed || !models.empty() ? fmt::format("driver {}", driver_version()) : "none";
  check.found += "; a run uses the processor";
  if (devices && devices->empty() && !models.empty()) {
    check.level = CheckLevel::kWarning;
    check.mend = "CUDA lists none of them: look at CUDA_VISIBLE_DEVICES and at the driver";
  } else if (!devices) {
    const Status& error = devices.error();
    const bool absent = error.code() == Code::kNotFound;
    if (!absent) check.level = CheckLevel::kWarning;
    if (!absent || !models.empty()) {
      check.mend = error.hint().empty() ? error.message() : error.message() + "; " + error.hint();
    }
  }
  return check;
}

// For losses of one's own alone, so its absence is no lack.
Check torch() {
  Check check{"LibTorch"};
  const auto library = trainer::find_torch();
  if (library) {
    check.found =
        fmt::format("{}, for losses of your own (algorithm.name: torch) and score --path torch", library->release);
    return check;
  }
  if (library.error().code() == Code::kNotFound) {
    check.found =
        "none; only losses of your own (algorithm.name: torch) and score --path torch need it, and scripts/with-torch "
        "installs it";
  } else {
    check.level = CheckLevel::kWarning;
    check.found = library.error().message();
    check.mend = library.error().hint();
  }
  return check;
}

Check port() {
  Check check{"port"};
  boost::asio::io_context context;
  boost::system::error_code error;
  boost::asio::ip::tcp::acceptor acceptor(context);
  const boost::asio::ip::tcp::endpoint any(boost::asio::ip::address_v4::loopback(), 0);
  if (!acceptor.open(any.protocol(), error) && !acceptor.bind(any, error)) acceptor.listen(1, error);
  if (error) {
    check.level = CheckLevel::kWarning;
    check.found = "127.0.0.1 cannot be listened on: " + error.message();
    check.mend = "runs do not need it; tandem view and tandem serve do";
  } else {
    check.found = "127.0.0.1 can be listened on";
  }
  return check;
}

Check local_socket() {
  Check check{"sockets"};
  const std::string path = fmt::format("/tmp/tandem-doctor-{}-{}", ::getuid(), ::getpid());
  try {
    zmq::context_t context;
    zmq::socket_t socket(context, zmq::socket_type::router);
    socket.set(zmq::sockopt::linger, 0);
    socket.bind(wire::Address::of_path(path).text());
    check.found = "ipc sockets can be made in /tmp";
  } catch (const zmq::error_t& error) {
    check.level = CheckLevel::kFailed;
    check.found = fmt::format("no ipc socket in /tmp: {}", error.what());
    check.mend = "make /tmp a writable folder of a local file system";
  }
  std::error_code ignored;
  fs::remove(path, ignored);
  return check;
}

// What env.packages has where it says auto. That a tool is missing matters to those runs alone.
Check registries() {
  Check check{"packages"};
  const auto add = [&](const char* name, const envs::PackageSettings& settings, auto member) {
    const auto found = envs::find_registries(settings);
    check.found += fmt::format("{}{} {}", check.found.empty() ? "" : ", ", name,
                               found ? ((*found).*member)->url.to_string() : std::string("not known"));
  };
  add("pypi", {.pypi = "auto"}, &envs::Registries::pypi);
  add("npm", {.npm = "auto"}, &envs::Registries::npm);
  add("debian", {.debian = "auto"}, &envs::Registries::debian);
  return check;
}

std::string_view to_string(CheckLevel level) {
  return level == CheckLevel::kOk ? "ok" : level == CheckLevel::kWarning ? "warning" : "failed";
}

Result<int> examine(bool as_json) {
  std::vector<Check> checks = {cores(), instruction_sets(), memory(), gpu(), torch()};
  checks.push_back(free_space("shared memory", "/dev/shm", 0.25, "give the container more (docker: --shm-size=1g)"));
  std::error_code ignored;
  checks.push_back(free_space("disk", fs::current_path(ignored), 5,
                              "a run with checkpoints wants 5 GiB; run.dir may point elsewhere"));
  checks.push_back(port());
  checks.push_back(local_socket());
  checks.push_back(registries());
  for (Check& check : envs::check_machine()) checks.push_back(std::move(check));

  bool fit = true;
  Json list = Json::array();
  for (const Check& check : checks) {
    fit = fit && check.level != CheckLevel::kFailed;
    if (as_json) {
      list.push_back(
          {{"name", check.name}, {"level", to_string(check.level)}, {"found", check.found}, {"mend", check.mend}});
    } else {
      fmt::print("{:<8} {:<17} {}\n", to_string(check.level), check.name, check.found);
      if (!check.mend.empty()) fmt::print("{:<26} -> {}\n", "", check.mend);
    }
  }
  if (as_json) fmt::print("{}\n", dump_json_line(Json{{"fit", fit}, {"checks", std::move(list)}}));
  return fit ? kDone : kUnfit;
}

}  // namespace

Action add_doctor(CLI::App& command) {
  const auto as_json = std::make_shared<bool>(false);
  command.add_flag("--json", *as_json, "One JSON object: {fit, checks: [{name, level, found, mend}]}");
  command.footer("Example:\n  tandem doctor --json | jq .fit");
  return [as_json] { return examine(*as_json); };
}

}  // namespace tandem::cli
