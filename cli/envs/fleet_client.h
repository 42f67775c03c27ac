// Lines to the environment servers of a run, for `tandem envs`.
//
// Those of a run are found through its directory; hosts of many runs also by their endpoints.
// Every wait has a deadline.
//
// Thread safety: none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "envs/fleet/messages.h"
#include "wire/socket.h"

namespace tandem::cli {

struct FleetTarget {
  std::string run;                     // its directory; may be empty where endpoints name hosts of many runs
  std::vector<std::string> endpoints;  // in place of the servers that the run's config leads to
  std::string key;                     // file with the key of hosts; the run's own where it is empty
  double patience = 3;                 // seconds for a server to answer
};

// Whether waiting is to end early: somebody pressed Ctrl-C.
using Interrupted = std::function<bool()>;

// A line to one server.
class FleetLine {
 public:
  FleetLine(wire::Socket socket, std::string endpoint) : socket_(std::move(socket)), endpoint_(std::move(endpoint)) {}

  const std::string& endpoint() const { return endpoint_; }
  // The server's name, and its epoch in the last answer; empty and 0 before the first one.
  const std::string& name() const { return name_; }
  uint64_t epoch() const { return epoch_; }

  // kUnavailable where nobody is there within `seconds`, kDeadline where somebody is who does not answer by then,
  // kCancelled when interrupted; other errors are the server's.
  Result<envs::FleetAnswer> ask(const envs::FleetQuery& query, double seconds, const Interrupted& interrupted = {});
  // The same, as the kind of answer that the question has.
  template <typename T>
  Result<T> ask_for(const envs::FleetQuery& query, double seconds, const Interrupted& interrupted = {}) {
    auto answer = ask(query, seconds, interrupted);
    if (!answer) return fail(std::move(answer).error());
    if (auto* expected = std::get_if<T>(&*answer)) return std::move(*expected);
    return fail(Status::corrupt(endpoint_ + " answered another question"));
  }

 private:
  wire::Socket socket_;
  const std::string endpoint_;
  std::string name_;
  uint64_t epoch_ = 0, last_id_ = 0;
};

class FleetClient {
 public:
  // kInvalid for what is no run directory or no endpoint; kUnavailable, saying how the run stands, where it is clear
  // that no server is alive.
  static Result<FleetClient> open(const FleetTarget& target);

  std::vector<FleetLine>& lines() { return lines_; }
  double patience() const { return patience_; }

  // Every sandbox of a server, in order; page by page.
  Result<std::vector<envs::SandboxRow>> rows(FleetLine& line, const Interrupted& interrupted = {}) const;

  // Asks one server after another until one knows the sandbox: the answer, and whose it is.
  template <typename T>
  Result<std::pair<T, FleetLine*>> ask_owner(const envs::FleetQuery& query, double seconds) {
    Status trouble;
    for (auto& line : lines_) {
      auto answer = line.ask_for<T>(query, seconds);
      if (answer) return std::pair<T, FleetLine*>(std::move(*answer), &line);
      // That one does not know it says less than that another does not answer.
      if (trouble || answer.error().code() != Code::kNotFound) trouble = answer.error();
    }
    return fail(std::move(trouble));
  }

 private:
  FleetClient(std::unique_ptr<zmq::context_t> context, double patience)
      : context_(std::move(context)), patience_(patience) {}

  std::unique_ptr<zmq::context_t> context_;  // outlives the sockets
  std::vector<FleetLine> lines_;
  double patience_;
};

}  // namespace tandem::cli
