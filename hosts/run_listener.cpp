#include "hosts/run_listener.h"

#include <fmt/format.h>

#include "base/unique_number.h"
#include "wire/address.h"
#include "wire/ask.h"

namespace tandem::hosts {

Result<RunListener> RunListener::open(zmq::context_t& context, const std::string& ip, const wire::Secret& secret) {
  // A host that joins does not know the run's number yet.
  const wire::Identity identity{
      .sender = "run-listener", .epoch = unique_number(), .run = wire::kEveryRun, .hears_other_protocols = true};
  return RunListener(TRY(wire::Socket::listen(context, wire::Address::of_any_port(ip).text(), identity, &secret)));
}

void RunListener::serve(const std::function<Status(const Join&)>& join,
                        const std::function<Status(const Leave&)>& leave) {
  constexpr int kMostOfATurn = 16;
  for (int i = 0; i < kMostOfATurn; ++i) {
    auto message = socket_.receive();
    if (!message) return;
    if (!message->body().isHostRequest()) continue;
    const auto request = read_request(message->body().getHostRequest());
    Status outcome = request ? Status::invalid("a run is asked to take a host or to give one back, and nothing else")
                             : request.error();
    if (message->protocol() != wire::kProtocolVersion) {
      outcome = Status::unfit(fmt::format("the run speaks version {} of the protocol, and not {}",
                                          wire::kProtocolVersion, message->protocol()));
    } else if (request) {
      if (const auto* more = std::get_if<Join>(&*request)) outcome = join(*more);
      if (const auto* less = std::get_if<Leave>(&*request)) outcome = leave(*less);
    }
    wire::Outgoing out(message->id(), message->run());
    write_answer(0, outcome ? Answer(Settled{}) : Answer(Refused{outcome}), out.body().initHostAnswer());
    (void)socket_.send(message->sender(), out);  // who is gone asks again
  }
}

Status ask_run(const std::string& address, const wire::Secret& secret, const Request& request, double seconds) {
  zmq::context_t context;
  const uint64_t life = unique_number();
  const wire::Identity identity{
      .sender = fmt::format("asker-{:x}", life), .epoch = life, .run = life, .hears_other_protocols = true};
  auto socket = TRY(wire::Socket::connect(context, address, identity, &secret));
  const auto answer = wire::ask(
      socket, 1, [&](wire::Body::Builder body) { write_request(0, request, body.initHostRequest()); }, seconds);
  if (!answer || !answer->body().isHostAnswer()) {
    return Status::unavailable(fmt::format("no run answers at {}", address))
        .hint("is it on, and is this its run.key? Strangers get no answer");
  }
  const auto said = TRY(read_answer(answer->body().getHostAnswer()));
  const auto* refused = std::get_if<Refused>(&said);
  return refused != nullptr ? refused->why : Status();
}

}  // namespace tandem::hosts
