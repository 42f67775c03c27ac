// Messages between a process of a run and the host that keeps a copy of the run's files, as values; `copyRequest` and
// `copyAnswer` on the wire.
//
// A stream is what one process has copied. Its requests have numbers within a life; the host carries each out once, in
// their order, and answers when it is on disk. Paths are below the run directory, with slashes.
//
// Values: copy.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "wire/socket.h"

namespace tandem::standby {

inline constexpr size_t kPartBytes = size_t{1} << 20, kMostPaths = 64, kMostFiles = 100'000;

// The first of a life: what is there, at these paths and below?
struct Survey {
  std::vector<std::string> paths;
};
// The file has `offset` bytes and gets so many more.
struct Extend {
  std::string path;
  uint64_t offset = 0, bytes = 0;
};
// A part of a file that takes its place once all are there.
struct Put {
  std::string path;
  uint64_t offset = 0, bytes = 0, total = 0;
  Digest digest;  // of the whole file
  bool is_executable = false;
};
struct Link {
  std::string path, target;
};
struct Remove {  // a file, or a folder with all that is below
  std::string path;
};
// Whether all that the stream has acknowledged is there; also said now and then when there is nothing else to say.
struct SetWhole {
  bool whole = true;
};
using Op = std::variant<Survey, Extend, Put, Link, Remove, SetWhole>;

struct Request {
  uint64_t epoch = 1;  // of the run
  uint64_t life = 0, number = 0;
  std::string run;  // its name, for people
  Op op;
};

struct FoundFile {
  std::string path;
  uint64_t bytes = 0;
  Digest digest;
  std::string link;  // not empty: a symbolic link with this target
};
struct Done {};
struct Surveyed {
  std::string folder;  // of the copy, absolute
  std::vector<FoundFile> files;
};
struct Unknown {};  // this life is not known, or cannot go on
struct Refused {
  Status why;
};
struct Fenced {  // the run was taken over: it has this epoch now
  uint64_t epoch = 0;
  std::string holder;
};
struct Answer {
  uint64_t life = 0, number = 0;  // requests up to it are on disk
  std::variant<Done, Surveyed, Unknown, Refused, Fenced> what;
};

// `bytes`: those of an Extend or a Put, which are the message's one bulk frame.
void write_request(const Request& request, std::span<const std::byte> bytes, wire::CopyRequest::Builder out);
// Whether its message has a bulk frame.
bool has_bytes(const Op& op);
// kInvalid for what breaks a limit above or names what is no path below a run; kCorrupt where the bytes are not those
// that were sent.
Result<Request> read_request(const wire::Incoming& message);

void write_answer(const Answer& answer, wire::CopyAnswer::Builder out);
Answer read_answer(wire::CopyAnswer::Reader in);

// kInvalid for a path that is empty, absolute, not normal, leads out of the run, or is one of the files by which a
// directory knows itself.
Status check_path(std::string_view path);
bool is_at_or_below(std::string_view path, std::string_view folder);

// kInvalid for a link that leads out of the run.
Status check_link(const Link& link);

}  // namespace tandem::standby
