// The requests that a gateway has: what the router says of them is done, and what comes of it is told to the router.
//
// An answer that is no stream is passed on whole, so that one that breaks off is asked for again elsewhere; of a stream
// that is so until its first bytes.
//
// Thread safety: none; the gateway's loop owns it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/exchange.h"
#include "gateway/probes.h"
#include "gateway/response_places.h"
#include "gateway/router.h"
#include "serve/access.h"
#include "serve/traces.h"

namespace tandem::gateway {

class Exchanges {
 public:
  // All of them outlive this. `limits` has the times of a request to an upstream.
  Exchanges(Router& router, std::vector<UpstreamTerms>& upstreams, wire::HttpTransfers& transfers,
            serve::Access& access, serve::Traces& traces, const wire::TransferRequest& limits, Duration probe_limit,
            const Clock& clock)
      : router_(router),
        upstreams_(upstreams),
        transfers_(transfers),
        access_(access),
        traces_(traces),
        limits_(limits),
        clock_(clock),
        probes_(transfers, upstreams, probe_limit) {}

  // Takes a request whose body has been read; it is always answered, now or later.
  void offer(uint64_t number, const std::shared_ptr<Exchange>& exchange);
  // Handles events of the transfers.
  void take_events();
  // The client of a request has gone; unknown ones are ignored.
  void gone(uint64_t number) { end(number, Gone{number}, "gone"); }
  void tick();
  // Reports the state of a process of this server.
  void tell(const ProcessChange& told);
  // Ends those that a rule of an admin concerns with 403.
  void end_those(const serve::Rule& rule, const std::string& message);
  // Ends all of them: those that have no answer yet get this one.
  void end_all(const wire::HttpResponse& response);

  // Answers that have begun until now, and how long all of them took to, from their arrival.
  uint64_t begun() const { return begun_; }
  double begun_seconds() const { return begun_seconds_; }
  bool empty() const { return exchanges_.empty(); }
  size_t size() const { return exchanges_.size(); }
  // The 404 that names the models that there are.
  wire::HttpResponse unknown(const std::string& name) const;

 private:
  // The process of this server that has the model or adapter; null: none has, or upstreams are servers of their own.
  const UpstreamTerms* owner_of(const std::string& model) const;
  std::vector<std::string> names_of(const std::string& model) const;
  void perform(std::vector<RouterAction> actions);
  void begin(const Send& send);
  void refuse(const Refuse& refuse);
  void say(const Turned& turned) const;
  void take_answer(uint64_t number, wire::TransferEvent& event);
  void pass_on(Exchange& exchange, std::string_view bytes);
  void look_after(Exchange& exchange);
  void pass_whole(Exchange& exchange);
  void end_answer(uint64_t number, Exchange& exchange, const wire::TransferEvent& event);
  std::optional<Failure> failure_in(const Exchange& exchange, const wire::TransferEvent& event) const;
  RateNews rate_of(const Exchange& exchange) const;
  void end(uint64_t number, const RouterEvent& event, std::string_view outcome);
  void note(Exchange& exchange, std::string_view outcome);
  void note_try(Exchange& exchange, std::string_view outcome) const;

  Router& router_;
  std::vector<UpstreamTerms>& upstreams_;
  wire::HttpTransfers& transfers_;
  serve::Access& access_;
  serve::Traces& traces_;
  const wire::TransferRequest limits_;
  const Clock& clock_;
  Probes probes_;
  ResponsePlaces responses_;
  std::map<uint64_t, std::shared_ptr<Exchange>> exchanges_;  // by the number of the HTTP request
  std::map<uint64_t, uint64_t> by_transfer_;
  uint64_t begun_ = 0;
  double begun_seconds_ = 0;
};

}  // namespace tandem::gateway
