// A server of chat completions that stands for a judge which believes what it reads, unless it stands within the fence
// that it was told of: a real one, over HTTP.
//
// It is honest about a work in the fence: its score is the number after "quality ", and of two works it prefers the one
// with more of it. It obeys what stands outside: "SCORE 1" makes the score 1, "WINNER B" the winner B.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "wire/http_server.h"

namespace tandem {

class GullibleJudge {
 public:
  enum class Manner : uint8_t {
    kHonest,
    kFirstWins,     // by the order alone
    kParrots,       // repeats the JSON that it finds in the work
    kLies,          // about its tokens
    kWithoutSchema  // refuses response_format, as servers do that do not know it
  };
  explicit GullibleJudge(Manner manner = Manner::kHonest)
      : manner_(manner), server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{16} << 20})) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      std::lock_guard lock(mutex_);
      ++asked_;
      const Json body = parse_json(request.body).value_or(Json::object());
      last_ = body;
      if (manner_ == Manner::kWithoutSchema && body.contains("response_format"))
        return reply({400, {}, R"({"error": {"message": "response_format is not supported"}})"});
      const std::string said = verdict(body);
      reply(
          {200,
           {{"Content-Type", "application/json"}},
           dump_json({{"choices", {{{"message", {{"role", "assistant"}, {"content", said}}}}}}, {"usage", usage()}})});
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~GullibleJudge() {
    stop_ = true;
    thread_.join();
  }
  GullibleJudge(const GullibleJudge&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()) + "/v1"; }
  int asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  Json last_request() {
    std::lock_guard lock(mutex_);
    return last_;
  }

  // What it says to these messages.
  std::string verdict(const Json& body) const {
    const auto system = body.at("messages").at(0).at("content").get<std::string>();
    const auto user = body.at("messages").at(1).at("content").get<std::string>();
    const auto fence = between(system, "<<<", " ");
    std::vector<std::string> works;
    std::string outside;
    bool inside = false;
    for (const auto line : split(user, '\n')) {
      if (!fence.empty() && line == "<<<" + fence) {
        inside = true;
        works.emplace_back();
      } else if (!fence.empty() && line == fence + ">>>") {
        inside = false;
      } else {
        (inside ? works.back() : outside).append(line).append("\n");
      }
    }
    const Json canary = between(system, "\"canary\" must be \"", "\"");
    if (manner_ == Manner::kParrots && !works.empty()) return "{" + between(works[0], "{", "}") + "}";
    Json said = {{"canary", canary}, {"reason", "because"}};
    if (works.size() == 2) {
      const double a = quality_of(works[0]), b = quality_of(works[1]);
      said["winner"] = a > b ? "A" : a < b ? "B" : "tie";
      if (manner_ == Manner::kFirstWins) said["winner"] = "A";
      if (outside.find("WINNER B") != std::string::npos) said["winner"] = "B";
    } else {
      said["score"] = works.empty() ? 0 : quality_of(works[0]);
      if (outside.find("SCORE 1") != std::string::npos) said["score"] = 1;
    }
    return dump_json(said);
  }

 private:
  Json usage() {
    if (manner_ != Manner::kLies) return {{"prompt_tokens", 100}, {"completion_tokens", 10}};
    const std::vector<Json> lies = {Json("all of it"),
                                    Json(),
                                    {{"prompt_tokens", -1}, {"completion_tokens", 1}},
                                    {{"prompt_tokens", 1e300}, {"completion_tokens", "two"}},
                                    {{"prompt_tokens", UINT64_MAX}, {"completion_tokens", UINT64_MAX}}};
    return lies[static_cast<size_t>(asked_ - 1) % lies.size()];
  }
  static std::string between(const std::string& text, const std::string& before, const std::string& after) {
    const size_t at = text.find(before);
    if (at == std::string::npos) return "";
    const size_t from = at + before.size();
    return text.substr(from, text.find(after, from) - from);
  }
  static double quality_of(const std::string& work) {
    const auto number = between(work, "quality ", "\n");
    return number.empty() ? 0 : std::stod(number);
  }

  const Manner manner_;
  wire::HttpServer server_;
  wire::HttpHandler handler_;
  std::mutex mutex_;
  int asked_ = 0;
  Json last_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tandem
