#include "kernels/emulated/device.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace tandem::kernels::emulated {

namespace {
constexpr size_t kMostWaiting = 100'000;  // pieces of work of a stream that nobody waits for
}

Device::Device(int index, const Settings& settings)
    : settings_(settings),
      memory_(index, settings.memory, settings.shared),
      threads_(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u))),
      random_(settings.seed.value_or(0) + static_cast<uint64_t>(index)) {}

Stream* Device::open(bool tensor) {
  const std::lock_guard lock(mutex_);
  return streams_.emplace_back(new Stream{.device = *this, .tensor = tensor}).get();
}

void Device::close(Stream* stream) {
  const std::lock_guard lock(mutex_);
  const Memory::Opened opened(memory_);
  while (!lost_ && !stream->work.empty()) step(*stream);
  std::erase_if(capturing_, [&](const auto& one) { return one.second == stream; });
  streams_.remove_if([&](const auto& own) { return own.get() == stream; });
}

int Device::allocate(size_t bytes, void** memory) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  if (lost_) return kLost;
  *memory = memory_.allocate(bytes);
  return *memory ? static_cast<int>(kTandemCudaOk) : static_cast<int>(kNoMemory);
}

// As on a GPU it waits for all that is to be done.
int Device::free(void* memory) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  if (memory == nullptr) return kTandemCudaOk;
  {
    const Memory::Opened opened(memory_);
    for (const auto& stream : streams_) {
      while (!lost_ && !stream->work.empty()) step(*stream);
    }
  }
  if (!memory_.free(memory)) return kTandemCudaNull;
  return lost_ ? static_cast<int>(kLost) : static_cast<int>(kTandemCudaOk);
}

int Device::copy(Stream& stream, void* to, const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  return put(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
}

int Device::wait(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  const Memory::Opened opened(memory_);
  while (!lost_ && !stream.work.empty()) step(stream);
  return lost_ ? static_cast<int>(kLost) : static_cast<int>(kTandemCudaOk);
}

int Device::done(Stream& stream, int* done) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  const Memory::Opened opened(memory_);
  const auto now = settings_.seed ? static_cast<size_t>(random_() % 64 + 1) : stream.work.size();
  for (size_t i = 0; i < now && !lost_ && !stream.work.empty(); ++i) step(stream);
  *done = stream.work.empty();
  return lost_ ? static_cast<int>(kLost) : static_cast<int>(kTandemCudaOk);
}

int Device::record(Stream& stream, Event& event) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  event.stream = &stream;
  return put(stream, [passed = event.passed, number = ++event.recorded] { *passed = number; });
}

int Device::passed(Event& event, int* passed) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  const Memory::Opened opened(memory_);
  const uint64_t most = settings_.seed ? random_() % 64 + 1 : UINT64_MAX;
  const auto open = [&] {
    return *event.passed < event.recorded && known(event.stream) && !event.stream->work.empty();
  };
  for (uint64_t i = 0; i < most && !lost_ && open(); ++i) step(*event.stream);
  *passed = *event.passed >= event.recorded;
  return lost_ ? static_cast<int>(kLost) : static_cast<int>(kTandemCudaOk);
}

int Device::wait_for(Stream& stream, const Event& event) {
  const std::lock_guard lock(mutex_);
  if (captures()) return kCaptures;
  return put(stream, [this, from = event.stream, passed = event.passed, number = event.recorded] {
    while (*passed < number && known(from) && !from->work.empty()) step(*from);
  });
}

int Device::room(size_t* free, size_t* all) {
  const std::lock_guard lock(mutex_);
  *free = memory_.free_bytes();
  *all = memory_.bytes();
  return kTandemCudaOk;
}

int Device::begin_capture(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (lost_) return kLost;
  if (captures() || stream.captured) return kCaptures;
  stream.captured = std::make_shared<Graph>();
  stream.spoilt = false;
  capturing_[std::this_thread::get_id()] = &stream;
  return kTandemCudaOk;
}

int Device::end_capture(Stream& stream, std::shared_ptr<Graph>* graph) {
  const std::lock_guard lock(mutex_);
  std::erase_if(capturing_, [&](const auto& one) { return one.second == &stream; });
  auto captured = std::exchange(stream.captured, nullptr);
  if (lost_) return kLost;
  if (!captured || stream.spoilt) return kCaptures;
  if (graph == nullptr) return kTandemCudaOk;
  std::erase_if(graphs_, [](const auto& one) { return one.expired(); });
  if (graphs_.size() >= settings_.graphs) return kNoMemory;
  graphs_.push_back(captured);
  *graph = std::move(captured);
  return kTandemCudaOk;
}

// As on a GPU all of it is started, or nothing.
int Device::launch(Stream& stream, const std::shared_ptr<Graph>& graph) {
  const std::lock_guard lock(mutex_);
  if (stream.captured) return kCaptures;
  for (uint64_t i = 0; i < graph->kernels; ++i) {
    if (const int code = count_kernel()) return code;
  }
  for (size_t i = 0; i < graph->work.size(); ++i) {
    if (const int code = put(stream, [graph, i] { graph->work[i](); })) return code;
  }
  return kTandemCudaOk;
}

int Device::check_captures() {
  const std::lock_guard lock(mutex_);
  return captures() ? static_cast<int>(kCaptures) : static_cast<int>(kTandemCudaOk);
}

bool Device::captures() {
  const auto found = capturing_.find(std::this_thread::get_id());
  if (found == capturing_.end()) return false;
  found->second->spoilt = true;
  return true;
}

int Device::count_kernel() {
  ++kernels_;
  if (kernels_ == settings_.lose_at) lost_ = true;
  if (kernels_ == settings_.refuse_at) return kRefused;
  return kTandemCudaOk;
}

int Device::put(Stream& stream, std::function<void()> work) {
  if (lost_) return kLost;
  if (stream.captured) {
    stream.captured->work.push_back(std::move(work));
    return kTandemCudaOk;
  }
  stream.work.push_back(std::move(work));
  if (stream.work.size() > kMostWaiting) {
    const Memory::Opened opened(memory_);
    while (!stream.work.empty()) step(stream);
  }
  if (!settings_.seed || random_() % 8 != 0) return kTandemCudaOk;
  // Some of the work, of any stream that has some.
  const Memory::Opened opened(memory_);
  for (uint64_t i = random_() % 16; i > 0; --i) {
    auto chosen = streams_.begin();
    std::advance(chosen, static_cast<long>(random_() % streams_.size()));
    if (!(*chosen)->work.empty()) step(**chosen);
  }
  return kTandemCudaOk;
}

bool Device::known(const Stream* stream) const {
  return std::ranges::any_of(streams_, [&](const auto& own) { return own.get() == stream; });
}

void Device::step(Stream& stream) {
  const auto work = std::move(stream.work.front());
  stream.work.pop_front();
  work();
}

}  // namespace tandem::kernels::emulated
