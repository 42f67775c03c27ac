// Asks upstreams for their models: whether they are there, and what they are asked for.
//
// Thread safety: none; the gateway's loop owns it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gateway/router.h"
#include "gateway/upstream.h"
#include "wire/http_transfers.h"

namespace tandem::gateway {

class Probes {
 public:
  // Both outlive this. The models of an upstream that is to be renamed are set in `upstreams`.
  Probes(wire::HttpTransfers& transfers, std::vector<UpstreamTerms>& upstreams, Duration limit)
      : transfers_(transfers), upstreams_(upstreams), limit_(limit) {}

  void begin(size_t upstream);
  // False: the event is of no probe. `probed` is set where it was the last of one.
  bool take(const wire::TransferEvent& event, std::optional<Probed>& probed);

 private:
  struct Answer {
    size_t upstream = 0;
    int status = 0;
    std::string body;
  };
  Result<std::vector<std::string>> names_of(const Answer& answer, const Status& outcome);

  wire::HttpTransfers& transfers_;
  std::vector<UpstreamTerms>& upstreams_;
  const Duration limit_;
  std::map<uint64_t, Answer> answers_;  // by transfer
  std::map<size_t, std::string> told_;  // by upstream: why it could not be asked
};

}  // namespace tandem::gateway
