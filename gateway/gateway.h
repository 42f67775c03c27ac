// One address for several servers: requests of OpenAI's API go to whichever upstream has their model, their prefix and
// room (router.h); answers are passed on as they come.
//
// Keys, limits, rules and the log of usage are those of a server (serve/access.h). A client's key goes no further: an
// upstream gets its own. An answer that is no stream is passed on whole, so that one that breaks off is asked for again
// elsewhere; of a stream that is so until its first bytes.
//
// In a server with a process for each model the upstreams are these processes (processes.h): the router is told of
// them, and their answers are passed on as they are.
//
// Thread safety: one thread; `stop` and `read_keys` may be set from anywhere, a signal handler included.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gateway/processes.h"
#include "gateway/upstream.h"
#include "serve/front.h"
#include "serve/traces.h"

namespace tandem::gateway {

struct GatewaySettings {
  serve::FrontSettings front;
  std::vector<UpstreamTerms> upstreams;
  int queue = 1024;          // requests of a model that wait, at most
  double wait_seconds = 30;  // for an upstream, where none can be asked
  double first_byte_seconds = 300, silence_seconds = 60, answer_seconds = 3600;
  double probe_seconds = 5;
  double drain_seconds = 30;
  serve::TraceSettings traces;
  bool salt_by_key = false;  // prefixes of different keys are told apart
  int slow_start = 0;        // requests at once after the start (serve/slow_start.h); 0: all
  double slow_start_seconds = 2;
  int slots = 0;  // answers that all upstreams sample at once, where they are processes of this server
  std::string version;
  Processes* processes = nullptr;  // whose the upstreams are, in this order; outlives the gateway. Null: other servers
};

class Gateway {
 public:
  // kInvalid for a host off loopback without keys, and for upstreams that are none.
  static Result<std::unique_ptr<Gateway>> listen(GatewaySettings settings, const Clock& clock);
  ~Gateway();

  const std::string& url() const;

  // Calls `ready` with the models once an upstream has answered and each was asked, and answers until `stop`; then what
  // runs has `drain_seconds` to end.
  Status serve(const std::function<void(const std::vector<std::string>& models)>& ready, const std::atomic<bool>& stop,
               std::atomic<bool>& read_keys);

 private:
  class Loop;
  explicit Gateway(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::gateway
