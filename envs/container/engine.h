// A container engine, podman or Docker, asked over its Unix socket.
//
// The protocol is the Docker Engine API 1.40, which podman serves as well. Nothing is ever pulled from a registry: an
// image that is not there is an error which says how to get it. Every request has a deadline, every answer a bound.
//
// Thread safety: all may be called from several threads; each request has a connection of its own.
// Errors beside those that are named: kUnavailable where the engine does not answer or refuses, with its words;
// kDeadline where it takes too long; kCorrupt where its answer is none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "envs/container/engine_messages.h"

namespace tandem::envs {

// The value of an engine setting that searches the usual sockets.
inline constexpr std::string_view kAnyEngine = "auto";

// kInvalid where `name` is no reference to an image ("python:3.12-slim", "quay.io/a/b@sha256:...").
Status check_image_name(const std::string& name);

class Engine {
 public:
  // `place` is the path of a socket, with or without unix:// before it, or kAnyEngine: DOCKER_HOST and CONTAINER_HOST,
  // podman's socket of the user and of the system, Docker's. kUnfit where none of them answers, with how to start one.
  static Result<Engine> find(const std::string& place);

  const EngineVersion& version() const { return version_; }
  const std::string& socket() const { return socket_; }

  // kUnfit with the commands that pull or load it, where it is not there.
  Result<EngineImage> image(const std::string& name) const;
  // `settings` as the API has them. kNotFound where its image is not there.
  Result<std::string> create(const Json& settings) const;
  Status start(const std::string& container) const;
  Result<EngineState> state(const std::string& container) const;
  // Until it has ended: its exit code.
  Result<int> wait(const std::string& container, Duration limit) const;
  // Ends it where it runs. One that is not there is no error.
  Status remove(const std::string& container) const;
  // Containers with this label ("tandem.owner"), running or not.
  Result<std::vector<EngineContainer>> containers(const std::string& label) const;
  // Makes an image of what a container holds, under a name with a tag.
  Status commit(const std::string& container, const std::string& name, const std::string& tag) const;
  // Builds an image, under `name`, of a folder with a Dockerfile that comes as a tar archive.
  Status build(std::string archive, const std::string& name) const;

 private:
  struct Answer {
    int status = 0;
    std::string body;
  };
  struct Question {
    std::string method, path;  // behind the version
    std::string type = {}, body = {};
    Duration limit = std::chrono::seconds(30);
  };

  explicit Engine(std::string socket) : socket_(std::move(socket)) {}
  Result<Answer> ask(Question question) const;
  // Statuses of 400 and more are errors, with `what` in their words.
  Result<std::string> answer_to(Question question, const std::string& what) const;

  std::string socket_;
  EngineVersion version_;
};

}  // namespace tandem::envs
