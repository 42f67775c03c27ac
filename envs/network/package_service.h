// Answers requests that programs in a sandbox send to the proxy itself, as "GET /pypi/simple/six/": package registries
// behind one interface, so that sandboxes do not depend on their implementation (envs/packages).
//
// Thread safety: all of it; `answer` is called from one thread for each connection, and waits for its upstream.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tandem::envs {

// The port of the proxy on a sandbox's loopback device.
inline constexpr uint16_t kProxyPort = 3128;

// The home folder in a sandbox, below its temporary files: it lasts as long as they do, and is never collected.
inline const std::string kHome = "/tmp/home";

struct PackageRequest {
  std::string method;  // GET or HEAD
  std::string path;    // begins with a slash; as it was sent
  std::string accept;  // the field of that name; empty where there is none
};

struct PackageAnswer {
  int status = 200;
  std::string type = "application/octet-stream";
  std::string body;         // where there is no file
  FileDescriptor file;      // to be sent from its beginning
  uint64_t file_bytes = 0;  // of it
  std::string refused;      // why it is not available here, for the model to read; the body says the same
  // Why it could not be had although it was allowed: a failure of the infrastructure, which fails the call that asked.
  std::string broken;
};

class PackageService {
 public:
  virtual ~PackageService() = default;
  virtual PackageAnswer answer(const PackageRequest& request, const std::stop_token& stop) = 0;
  // "NAME=value": how programs in a sandbox find it.
  virtual std::vector<std::string> environment() const = 0;
  // Files below the home folder, of programs that find it by no variable.
  virtual std::map<std::string, std::string> home_files() const = 0;
  // Commands that install what every episode begins with; episodes share what they leave.
  virtual std::vector<std::string> setup() const = 0;
  // A command that installs packages of Python, as "pandas==2.3.2"; empty where there is no registry of them.
  virtual std::string install_python(std::span<const std::string> requirements) const = 0;
  // Equal where the same commands install the same.
  virtual std::string identity() const = 0;
  // A sentence about it for the model.
  virtual std::string told() const = 0;
};

}  // namespace tandem::envs
