// Messages between a run and a host, as values; `hostRequest` and `hostAnswer` on the wire.
//
// The run opens a session, offers the files of its home there, sends the chunks of those that the host does not have,
// and settles the home. From then on it sends beats: each names all processes that are to run there, and the answer
// says how they are. A lost beat or answer costs nothing but time.
//
// Values: copy.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "run/launcher.h"
#include "standby/protocol.h"
#include "wire/socket.h"

namespace tandem::hosts {

inline constexpr size_t kChunkBytes = 1 << 20;
inline constexpr size_t kMostFiles = 50'000, kMostTextBytes = 4 << 20, kMostJobs = 512, kMostLogBytes = 256 << 10;

struct HomeFile {
  std::string path;  // below the home, with slashes
  Digest digest;
  uint64_t bytes = 0;
  bool is_executable = false;
  std::string link;  // not empty: a symbolic link with this target, and nothing else
  friend bool operator==(const HomeFile&, const HomeFile&) = default;
};

struct Chunk {
  Digest digest;        // of the whole file
  uint64_t offset = 0;  // where it begins; in an answer: bytes that the host has
};

struct HomeText {
  std::string path, content;
};

enum class JobEnd : uint8_t { kNone, kAsk, kNow };

struct HostJob {
  uint64_t number = 0;  // one for each process that a session starts
  std::vector<std::string> arguments;
  std::string log;  // name of its file
  JobEnd end = JobEnd::kNone;
  uint64_t log_offset = 0;  // bytes of its log that the run has
};

struct Open {
  std::string version, weights, run;
  uint64_t epoch = 1;       // of the run (run/layout.h)
  std::string holder = {};  // where it was taken over, for people
};
struct Offer {
  std::vector<HomeFile> files;
};
struct SendChunk {  // the bytes are the message's bulk frame
  Chunk chunk;
};
struct Settle {
  std::vector<HomeText> texts;
};
struct Beat {
  uint64_t number = 0;
  std::vector<HostJob> jobs;
};
struct Close {};
// To the listener of a run (listener.h), from a host or an operator.
struct Join {
  std::string address;  // of a host that the run may use, too
};
struct Leave {
  std::string host;  // the name of one that it is to give back
};
// From a host to another: for how long has the run of the message said nothing?
struct AskSilence {};
using Request = std::variant<Open, Offer, SendChunk, Settle, Beat, Close, Join, Leave, AskSilence>;

struct Opened {
  std::string version, numerics_id, home;
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
};
struct Missing {
  std::vector<uint32_t> files;  // of the offer, by their places
};
struct Took {
  Chunk chunk;
};
struct Settled {};
struct HostProcess {
  uint64_t number = 0;
  int32_t pid = 0;
  bool is_running = false;
  int code = 0, signal = 0;  // of one that has ended
  uint64_t log_offset = 0;   // where `log` begins
  std::string log;
  bool is_log_complete = false;  // it has ended, and nothing follows `log`
  std::string failure;           // why it could not be started
};
struct HostState {
  uint64_t beat = 0;
  bool is_known = false;  // whether the host has the session
  bool is_draining = false;
  std::vector<HostProcess> processes;
};
struct Closed {};
struct Refused {
  Status why;
};
struct Silence {
  double seconds = 0;    // since the run was heard last, or since the host began
  bool is_over = false;  // the run has given the host back
};
using standby::Fenced;  // the run was taken over: this is an older epoch of it
using Answer = std::variant<Opened, Missing, Took, Settled, HostState, Closed, Refused, Fenced, Silence>;

void write_request(uint64_t session, const Request& request, wire::HostRequest::Builder out);
// kInvalid, with what is wrong, for what breaks a limit above.
Result<Request> read_request(wire::HostRequest::Reader in);

void write_answer(uint64_t session, const Answer& answer, wire::HostAnswer::Builder out);
Result<Answer> read_answer(wire::HostAnswer::Reader in);

// kInvalid for a path that is empty, absolute, not normal, or leads out of the home.
Status check_home_path(std::string_view path);

}  // namespace tandem::hosts
