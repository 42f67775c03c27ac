// The HTTP server of trained models: OpenAI's API, and vLLM's where OpenAI has none (docs/serving.md).
//
// One thread runs sockets, queues and texts; requests are read and made into tokens by a second; each model's engine
// has one of its own. It listens before the models are loaded, and says 503 until they are.
//
// Thread safety: one thread; `stop` may be set from anywhere, a signal handler included.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/adapters.h"
#include "serve/front.h"
#include "serve/lane.h"
#include "serve/lookups.h"
#include "serve/promotions.h"
#include "serve/traces.h"

namespace tandem::serve {

struct ServerSettings {
  FrontSettings front;
  std::vector<LaneSettings> models;
  fs::path embedding_model;  // empty: none
  PromotionSettings promotions;
  AdapterSettings adapters;
  size_t stored_response_bytes = size_t{64} << 20;  // of answers that requests may go on from; 0: none
  TraceSettings traces;
  int threads = 1;
  double drain_seconds = 30;
  // Where an engine has been in one step for longer, or no request could be read meanwhile, it cannot sample; 0: that
  // is not looked at.
  double stall_seconds = 0;
  int slow_start = 0;  // requests at once after the start (slow_start.h); 0: all
  double slow_start_seconds = 2;
  std::string version;
};

class Server {
 public:
  // kInvalid for a host off loopback without keys, and for two models or adapters of one name.
  static Result<std::unique_ptr<Server>> listen(ServerSettings settings, const Clock& clock);
  ~Server();

  std::string url() const;
  std::vector<std::string> model_names() const;
  std::vector<std::string> adapter_names() const;  // of those that are loaded with the models

  // Loads the models, calls `ready`, and answers until `stop`; then what runs has `drain_seconds` to end. Fails where a
  // model cannot be loaded. Keys are read again when their files change, and when `read_keys` is set.
  Status serve(const std::function<void()>& ready, const std::atomic<bool>& stop, std::atomic<bool>& read_keys);

 private:
  class Loop;
  explicit Server(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::serve
