// A `tandem serve` of the tiny model, asked over real sockets.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cli/run_fixture.h"
#include "wire/event_stream.h"
#include "wire/http_client.h"

namespace tandem {

class Serve : public RunTest {
 protected:
  // Starts it on the tiny model, called "tiny", and waits for its line.
  void start(Arguments more = {}) {
    Arguments arguments = {TANDEM_BINARY, "serve", "--model", "tiny=" + (root() / "model").string(), "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_.reset();
    fs::remove(root() / "serve.out");  // of the test before
    server_ = std::make_unique<Process>(arguments, root() / "serve.out");
    ASSERT_TRUE(within(60s, [&] { return line().contains("url") || !server_->running(); }));
    ASSERT_TRUE(line().contains("url")) << text(root() / "serve.out");
    url_ = line()["url"].get<std::string>();
  }
  static Json line() {
    const auto all = text(root() / "serve.out");
    for (const auto one : split_lines(all)) {
      const auto parsed = parse_json(one);
      if (parsed && parsed->is_object()) return *parsed;
    }
    return Json::object();
  }
  struct Answer {
    int status = 0;
    std::string body;
    std::optional<Duration> retry_after;
    Json json() const { return parse_json(body).value_or(Json::object()); }
  };
  Answer ask(const std::string& path, const std::string& body, const std::string& key = "", std::string method = "POST",
             std::stop_token stop = {}) const {
    return ask_at(url_ + path, body, key, std::move(method), std::move(stop));
  }
  static Answer ask_at(std::string url, const std::string& body, const std::string& key = "",
                       std::string method = "POST", std::stop_token stop = {}) {
    Answer answer;
    wire::OutgoingRequest request{.url = std::move(url), .method = std::move(method)};
    request.headers = {{"Content-Type", "application/json"}};
    if (!key.empty()) request.headers.emplace_back("Authorization", "Bearer " + key);
    request.body = body;
    request.limit = 120s;
    const auto head = wire::http_request(
        request,
        [&](const wire::HttpHead& h, std::string_view bytes) {
          answer.status = h.status;
          answer.body += bytes;
          return Status();
        },
        stop);
    if (!head) answer.body += " " + head.error().to_string();
    if (head) answer.status = head->status;
    if (head) answer.retry_after = head->retry_after;
    return answer;
  }
  Json post(const std::string& path, const Json& body) const {
    const auto answer = ask(path, dump_json(body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  std::vector<Json> stream(const std::string& path, Json body) const {
    body["stream"] = true;
    const auto answer = ask(path, dump_json(body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<Json> chunks;
    wire::EventStreamDecoder decoder(size_t{1} << 20);
    const auto events = decoder.feed(answer.body);
    EXPECT_TRUE(events && !events->empty()) << answer.body;
    if (!events || events->empty()) return chunks;
    for (const auto& event : *events) {
      if (event.data != "[DONE]") chunks.push_back(*parse_json(event.data));
    }
    EXPECT_EQ(events->back().data, "[DONE]");
    return chunks;
  }
  double metric(const std::string& name) const {
    const auto page = ask("/metrics", "", "", "GET").body;
    for (const auto one : split_lines(page)) {
      if (one.starts_with(name + "{")) return std::stod(std::string(one.substr(one.rfind(' ') + 1)));
    }
    return -1;
  }
  static std::vector<Json> lines_of(const Arguments& arguments, const std::vector<Json>& input) {
    std::ofstream file(root() / "input");
    for (const Json& one : input) file << dump_json(one) << "\n";
    file.close();
    Arguments all = arguments;
    all.insert(all.end(), {"--model", (root() / "model").string(), "--input", (root() / "input").string()});
    EXPECT_EQ(tandem(all), 0) << text(output());
    std::vector<Json> lines;
    const std::string said = text(output());
    for (const auto one : split_lines(said)) {
      if (auto parsed = parse_json(one); parsed && parsed->contains("id")) lines.push_back(std::move(*parsed));
    }
    return lines;
  }

  std::unique_ptr<Process> server_;
  std::string url_;
};

inline Json chat(const std::string& text, Json more = Json::object()) {
  Json body = {{"model", "tiny"}, {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
  for (const auto& [key, value] : more.items()) body[key] = value;
  return body;
}

}  // namespace tandem
