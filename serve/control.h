// Admin requests that change a running server: pause, resume, sleep and wake.
//
// Paths are vLLM's: POST /pause?mode=wait|keep|abort, /resume, /sleep, /wake_up; GET /is_paused, /is_sleeping. They are
// for all models. Each change leaves a line in the log, with the name of the key.
//
// Thread safety: none; the server's loop owns it. Weights are read again on the thread that reads requests.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/work_queue.h"
#include "serve/access.h"
#include "serve/model_set.h"

namespace tandem::serve {

class Control {
 public:
  // All of them outlive this.
  Control(const Access& access, const ModelSet& models, WorkQueue& queue)
      : access_(access), models_(models), queue_(queue) {}

  struct Path {
    std::string_view path, method, summary;
  };
  static std::span<const Path> paths();
  static const Path* find(std::string_view path);

  // `path` is of this request; the models are loaded.
  void answer(const Path& path, const wire::HttpRequest& request, const wire::HttpReply& reply);
  // Why new answers wait, or nothing.
  std::optional<std::string> waits() const;

 private:
  static Result<PauseMode> mode_of(const wire::HttpRequest& request);
  void wake(const wire::HttpReply& reply);
  bool any_paused() const;
  bool any_asleep() const;

  const Access& access_;
  const ModelSet& models_;
  WorkQueue& queue_;
  bool waking_ = false;
};

}  // namespace tandem::serve
