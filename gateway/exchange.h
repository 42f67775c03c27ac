// One request of a client on its way to an upstream, and the answer on its way back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/answer_scan.h"
#include "gateway/request_view.h"
#include "gateway/router.h"
#include "gateway/upstream.h"
#include "serve/keys.h"
#include "serve/traces.h"
#include "wire/http_server.h"
#include "wire/http_transfers.h"

namespace tandem::gateway {

// GET and DELETE of an answer that was kept: its id stands behind this.
inline constexpr std::string_view kResponses = "/v1/responses/";

struct Exchange {
  wire::HttpRequest request;  // its headers and body
  RequestView view;
  std::shared_ptr<const serve::KeyTerms> key;
  serve::Priority priority = serve::Priority::kInteractive;
  std::string session;  // as the client says it, or empty
  std::string via;      // the gateways that it has come through, this one last
  Time arrived{};
  wire::HttpReply reply;
  std::string id;  // in the log of usage

  // An attempt: from sending to its end, with the upstream's name.
  std::vector<serve::TraceSpan> tries;

  // Times at the current upstream.
  Time sent{}, first_byte{};
  size_t upstream = 0;
  uint64_t transfer = 0;  // 0: none has it
  std::optional<wire::TransferHead> head;
  std::string body;                          // of an answer that is passed on whole
  std::shared_ptr<wire::HttpStream> stream;  // null before the first bytes of one that is not
  bool held = false;                         // its client reads too slowly
  AnswerScan scan;
};

// Names the caller to a process of ours, which schedules callers in turn and separates their data.
inline constexpr const char* kCallerHeader = "X-Tandem-Caller";

// Why an answer with this head must not be passed on; empty where it may.
std::optional<Failure> failure_of(const wire::TransferHead& head);
// Whether it is a 404 that says so: others may have it.
bool lacks_the_model(const wire::TransferHead& head, std::string_view body);
bool is_stream(const wire::TransferHead& head);

// Builds the request to an upstream; empty where it has no such path. `limits` has the timeouts.
std::optional<wire::TransferRequest> transfer_of(const Exchange& exchange, const UpstreamTerms& terms,
                                                 const wire::TransferRequest& limits);
// The headers of an answer that clients get.
std::vector<std::pair<std::string, std::string>> passed_headers(const wire::TransferHead& head,
                                                                const UpstreamTerms& terms);

}  // namespace tandem::gateway
