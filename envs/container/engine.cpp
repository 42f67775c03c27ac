#include "envs/container/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "wire/http_client.h"

namespace tandem::envs {

using namespace std::chrono_literals;

namespace {

constexpr size_t kLargestAnswer = 8 << 20;
constexpr size_t kLongestImageName = 255;
constexpr std::string_view kApi = "/v1.40";

bool is_socket(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

std::string without_scheme(std::string place) {
  constexpr std::string_view kScheme = "unix://";
  if (place.starts_with(kScheme)) place.erase(0, kScheme.size());
  return place;
}

std::vector<std::string> usual_places() {
  std::vector<std::string> places;
  for (const char* name : {"DOCKER_HOST", "CONTAINER_HOST"}) {
    if (const char* value = getenv(name); value != nullptr && std::string_view(value).starts_with("unix://"))
      places.push_back(without_scheme(value));
  }
  if (const char* folder = getenv("XDG_RUNTIME_DIR"); folder != nullptr && folder[0] != '\0')
    places.push_back(std::string(folder) + "/podman/podman.sock");
  places.insert(places.end(), {"/run/podman/podman.sock", "/run/docker.sock"});
  return places;
}

std::string how_to_start() {
  return geteuid() == 0 ? "`systemctl start podman.socket`, or `podman system service --time=0 unix://PATH`"
                        : "`systemctl --user start podman.socket`, or `podman system service --time=0 unix://PATH`";
}

std::string percent_encoded(std::string_view text) {
  std::string encoded;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~')
      encoded += static_cast<char>(c);
    else
      encoded += fmt::format("%{:02X}", c);
  }
  return encoded;
}

}  // namespace

Status check_image_name(const std::string& name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("._-/:@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  const bool begins_well = !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) != 0;
  const bool ends_well = !name.empty() && std::isalnum(static_cast<unsigned char>(name.back())) != 0;
  if (begins_well && ends_well && name.size() <= kLongestImageName && name.find("..") == std::string::npos &&
      name.find("//") == std::string::npos && std::all_of(name.begin(), name.end(), fits))
    return {};
  return Status::invalid(fmt::format("\"{}\" is no name of an image such as python:3.12-slim", name));
}

Result<Engine> Engine::find(const std::string& place) {
  const bool any = place == kAnyEngine;
  std::vector<std::string> places = any ? usual_places() : std::vector{without_scheme(place)};
  std::string why;
  for (const auto& path : places) {
    if (!is_socket(path)) {
      if (!any) why = path + " is no socket";
      continue;
    }
    Engine engine(path);
    auto answer = engine.answer_to({.method = "GET", .path = "/version", .limit = 5s}, "say what it is");
    auto version = answer ? read_engine_version(*answer) : fail(std::move(answer).error());
    if (version) {
      engine.version_ = std::move(*version);
      return engine;
    }
    why += (why.empty() ? "" : "; ") + version.error().message();
  }
  if (why.empty()) why = fmt::format("there is no socket at {}", fmt::join(places, ", "));
  return fail(Status::unfit("no container engine answers: " + why).hint("start one: " + how_to_start()));
}

Result<Engine::Answer> Engine::ask(Question question) const {
  wire::OutgoingRequest request{.url = "http://engine" + std::string(kApi) + question.path,
                                .method = std::move(question.method),
                                .unix_socket = socket_,
                                .headers = {},
                                .body = std::move(question.body),
                                .connect_limit = 5s,
                                .limit = question.limit,
                                .largest_answer = kLargestAnswer};
  if (!question.type.empty()) request.headers.emplace_back("Content-Type", std::move(question.type));
  Answer answer;
  const auto head = wire::http_request(request,
                                       [&](const wire::HttpHead&, std::string_view bytes) -> Status {
                                         answer.body.append(bytes);
                                         return {};
                                       },
                                       {});
  if (!head) {
    const auto& error = head.error();
    return fail(Status(error.code() == Code::kDeadline ? Code::kDeadline : Code::kUnavailable,
                       fmt::format("the container engine at {} does not answer: {}", socket_, error.message())));
  }
  answer.status = head->status;
  return answer;
}

Result<std::string> Engine::answer_to(Question question, const std::string& what) const {
  auto answer = TRY(ask(std::move(question)));
  if (answer.status < 400) return std::move(answer.body);
  const Code code = answer.status == 404 ? Code::kNotFound : answer.status == 400 ? Code::kInvalid : Code::kUnavailable;
  return fail(Status(code, fmt::format("the container engine did not {}: {}", what, read_engine_error(answer.body))));
}

Result<EngineImage> Engine::image(const std::string& name) const {
  TRY(check_image_name(name));
  auto answer = answer_to({.method = "GET", .path = "/images/" + name + "/json"}, "describe the image " + name);
  if (answer) return read_engine_image(*answer);
  if (answer.error().code() != Code::kNotFound) return fail(std::move(answer).error());
  const std::string_view program = version_.name.find("odman") != std::string::npos ? "podman" : "docker";
  const auto how = name.starts_with("localhost/")
                       ? fmt::format("`{} load -i FILE` loads one, `tandem tasks build` builds those of tasks", program)
                       : fmt::format("`{0} pull {1}` gets it, or `{0} load -i FILE`", program, name);
  return fail(Status::unfit(fmt::format("the container engine at {} has no image \"{}\"; {}", socket_, name, how)));
}

Result<std::string> Engine::create(const Json& settings) const {
  return read_created_container(TRY(answer_to(
      {.method = "POST", .path = "/containers/create", .type = "application/json", .body = dump_json(settings)},
      "make a container")));
}

Status Engine::start(const std::string& container) const {
  const auto answer =
      answer_to({.method = "POST", .path = "/containers/" + container + "/start", .limit = 60s}, "start a container");
  return answer ? Status() : answer.error();
}

Result<EngineState> Engine::state(const std::string& container) const {
  return read_engine_state(
      TRY(answer_to({.method = "GET", .path = "/containers/" + container + "/json"}, "describe a container")));
}

Result<int> Engine::wait(const std::string& container, Duration limit) const {
  TRY(answer_to({.method = "POST", .path = "/containers/" + container + "/wait", .limit = limit},
                "wait for a container"));
  return TRY(state(container)).exit_code;
}

Status Engine::remove(const std::string& container) const {
  const auto answer =
      TRY(ask({.method = "DELETE", .path = "/containers/" + container + "?force=true&v=true", .limit = 20s}));
  // 409: it is being removed already.
  if (answer.status < 400 || answer.status == 404 || answer.status == 409) return {};
  return Status::unavailable("the container engine did not remove a container: " + read_engine_error(answer.body));
}

Result<std::vector<EngineContainer>> Engine::containers(const std::string& label) const {
  const auto filters = percent_encoded(dump_json(Json{{"label", Json::array({label})}}));
  return read_engine_containers(
      TRY(answer_to({.method = "GET", .path = "/containers/json?all=true&filters=" + filters}, "list containers")));
}

Status Engine::commit(const std::string& container, const std::string& name, const std::string& tag) const {
  const auto answer = answer_to({.method = "POST",
                                 .path = fmt::format("/commit?container={}&repo={}&tag={}", container,
                                                     percent_encoded(name), percent_encoded(tag)),
                                 .type = "application/json",
                                 .body = "{}",
                                 .limit = 600s},
                                "make an image of a container");
  return answer ? Status() : answer.error();
}

Status Engine::build(std::string archive, const std::string& name) const {
  const auto answer = TRY(answer_to({.method = "POST",
                                     .path = "/build?forcerm=true&t=" + percent_encoded(name),
                                     .type = "application/x-tar",
                                     .body = std::move(archive),
                                     .limit = 3600s},
                                    "build " + name));
  // The head of the answer comes before the work is done.
  const auto error = read_engine_progress_error(answer);
  return error.empty() ? Status() : Status::invalid("the image " + name + " could not be built: " + error);
}

}  // namespace tandem::envs
