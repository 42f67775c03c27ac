// Requests that are sampled, from their bytes to the version of a model that answers them.
//
// A candidate must not make a request fail: what it cannot read, has no room for, or loses with its engine before
// anything of the answer was sent, goes to the version that is served, which also goes on with streams that have begun.
//
// Thread safety: none; the server's loop owns it.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/unique_number.h"
#include "base/work_queue.h"
#include "serve/access.h"
#include "serve/adapters.h"
#include "serve/endpoints.h"
#include "serve/fields.h"
#include "serve/model_set.h"
#include "serve/promotions.h"
#include "serve/request_reader.h"
#include "serve/traces.h"
#include "wire/http_server.h"

namespace tandem::serve {

// An endpoint with what its bodies may hold.
struct Reading {
  Endpoint endpoint;
  FieldTable table;
};

class Intake {
 public:
  // All of them outlive this; jobs of `queue` read the requests.
  // `threads`: that compute, of each model.
  Intake(const ModelSet& models, WorkQueue& queue, Promotions& promotions, Adapters& adapters, Access& access,
         ResponseStore& stored, Traces& traces, int threads, const Clock& clock)
      : models_(models),
        queue_(queue),
        promotions_(promotions),
        adapters_(adapters),
        access_(access),
        stored_(stored),
        traces_(traces),
        threads_(threads),
        clock_(clock) {}

  // Answers now or later, in any case. `reading` outlives this; `key`: whose request it is.
  void take(const Reading& reading, wire::HttpRequest request, std::shared_ptr<const KeyTerms> key,
            wire::HttpReply reply);
  // Its client is no longer there: true where it was being read.
  bool gone(uint64_t number) { return reading_.erase(number) > 0; }
  size_t being_read() const { return reading_.size(); }

 private:
  struct Asked {
    const Reading& reading;
    uint64_t number = 0;  // of the HTTP request
    std::string body;
    Around around;
    std::string trace;  // of the header traceparent
    Time arrived{};
    wire::HttpReply reply;
  };
  // `failed` could not read it: its error, unless the request is wrong for all. Null: there is none.
  void read(std::shared_ptr<const Asked> asked, Version version, std::shared_ptr<Lane> failed = nullptr);
  void submit(const std::shared_ptr<const Asked>& asked, ReadRequest read, const std::shared_ptr<Lane>& failed);
  void copy(std::shared_ptr<const Asked> asked);
  // Data of a request when it goes to a lane.
  struct Begun {
    std::string model, adapter;
    Priority priority = Priority::kInteractive;
    Time read{};
  };
  void note(const Asked& asked, const Begun& begun, const Lane::Spent& spent);
  void trace(const Asked& asked, const Begun& begun, const Lane::Spent& spent);

  const ModelSet& models_;
  WorkQueue& queue_;
  Promotions& promotions_;
  Adapters& adapters_;
  Access& access_;
  ResponseStore& stored_;
  Traces& traces_;
  const int threads_;
  const Clock& clock_;
  const uint64_t run_ = unique_number();
  uint64_t requests_ = 0;
  std::set<uint64_t> reading_;
};

}  // namespace tandem::serve
