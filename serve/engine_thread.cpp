#include "serve/engine_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace tandem::serve {

EngineThread::EngineThread(rollout::Engine engine)
    : engine_(std::make_unique<rollout::Engine>(std::move(engine))),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EngineThread::start(Turn turn) {
  std::lock_guard lock(mutex_);
  turns_.push_back(std::move(turn));
  changed_.notify_all();
}

void EngineThread::hold(bool held) {
  std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void EngineThread::put(std::unique_ptr<rollout::Engine> engine) {
  std::lock_guard lock(mutex_);
  next_ = std::move(engine);
  changed_.notify_all();
}

void EngineThread::release(rollout::SequenceId id) {
  std::lock_guard lock(mutex_);
  released_.push_back(id);
  changed_.notify_all();
}

EngineThread::News EngineThread::take() {
  uint64_t count;
  while (::read(wake_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
  std::lock_guard lock(mutex_);
  News news = std::exchange(news_, {});
  news_.trouble = news.trouble;
  return news;
}

rollout::EngineCounters EngineThread::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

Duration EngineThread::busy() const {
  std::lock_guard lock(mutex_);
  return busy_since_ ? std::chrono::steady_clock::now() - *busy_since_ : Duration{0};
}

void EngineThread::run() {
  for (;;) {
    std::vector<Turn> turns;
    std::vector<rollout::SequenceId> released;
    bool stands = false;
    {
      std::unique_lock lock(mutex_);
      busy_since_.reset();
      changed_.wait(lock, [&] {
        const bool samples = engine_ && !held_ && news_.trouble.ok() && !engine_->idle();
        return stopping_ || next_ || samples || !turns_.empty() || !released_.empty();
      });
      if (stopping_) return;
      if (auto next = std::exchange(next_, std::nullopt)) {
        engine_ = std::move(*next);
      }
      turns.swap(turns_);
      released.swap(released_);
      stands = !news_.trouble.ok() || held_;
      busy_since_ = std::chrono::steady_clock::now();
    }
    News news;
    for (Turn& turn : turns) {
      Status status = engine_ ? engine_->add(turn.id, std::move(turn.prompt), turn.request)
                              : Status::unavailable("the engine has given up its memory");
      if (!status.ok()) news.refused.push_back({turn.id, std::move(status)});
    }
    if (!engine_) released.clear();
    for (const auto id : released) engine_->release(id);
    if (!stands && engine_ && !engine_->idle()) {
      auto sampled = engine_->step();
      if (sampled)
        news.tokens = std::move(*sampled);
      else
        news.trouble = std::move(sampled).error();
    }
    const bool any = !news.tokens.empty() || !news.refused.empty() || !news.trouble.ok();
    std::lock_guard lock(mutex_);
    if (engine_) counters_ = engine_->counters();
    if (!any) continue;
    std::ranges::move(news.tokens, std::back_inserter(news_.tokens));
    std::ranges::move(news.refused, std::back_inserter(news_.refused));
    if (!news.trouble.ok()) news_.trouble = std::move(news.trouble);
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }
}

}  // namespace tandem::serve
