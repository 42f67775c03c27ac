// What changes a server while it runs: pauses, sleep and waking, for who has an admin's key.
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
#include "serve/keys.h"
#include "serve/model_set.h"

namespace tandem::serve {

class Control {
 public:
  // Without keys all of it is refused. `models` and `queue` outlive this.
  Control(std::optional<Keys> admins, const ModelSet& models, WorkQueue& queue)
      : admins_(std::move(admins)), models_(models), queue_(queue) {}

  struct Path {
    std::string_view path, method, summary;
  };
  static std::span<const Path> paths();
  static const Path* find(std::string_view path);

  // Whether the request brings an admin's key.
  bool allows(const wire::HttpRequest& request) const { return admins_ && admins_->name_of(request); }
  // The name of the admin's key that the request brings; else why it may not use `path`, for a 403.
  Result<std::string> admin_of(std::string_view path, const wire::HttpRequest& request) const;
  // `path` is of this request; the models are loaded.
  void answer(const Path& path, const wire::HttpRequest& request, const wire::HttpReply& reply);
  // Why new answers wait, or nothing.
  std::optional<std::string> waits() const;
  // Reads the keys again where they have changed.
  Result<bool> refresh() { return admins_ ? admins_->refresh() : Result<bool>(false); }

 private:
  static Result<PauseMode> mode_of(const wire::HttpRequest& request);
  void wake(const wire::HttpReply& reply);
  bool any_paused() const;
  bool any_asleep() const;

  std::optional<Keys> admins_;
  const ModelSet& models_;
  WorkQueue& queue_;
  bool waking_ = false;
};

}  // namespace tandem::serve
