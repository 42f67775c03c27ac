#include "envs/foreign/environment_line.h"

#include "envs/foreign/environment_answers.h"
#include "envs/foreign/stdio_line.h"
#include "envs/rewards/post_json.h"

namespace tandem::envs {
namespace {

// POST URL/METHOD with the parameters, which name the episode from the second question on.
class HttpLine final : public EnvironmentLine {
 public:
  explicit HttpLine(std::string url) : url_(std::move(url)) {}

  Result<Json> ask(const std::string& method, const Json& params, double seconds) override {
    Json body = params;
    if (method == "reset") episode_.clear();
    if (!episode_.empty()) body["episode"] = episode_;
    const auto text = TRY(post_json({.url = url_ + "/" + method,
                                     .body = dump_json(body),
                                     .seconds = seconds,
                                     .largest_answer = kLargestEnvironmentAnswer}));
    auto answer = parse_json(text);
    if (!answer) return fail(Status::corrupt("answered no JSON: " + answer.error().message()));
    if (method == "reset" && answer->is_object() && answer->contains("episode") && answer->at("episode").is_string())
      episode_ = answer->at("episode").get<std::string>();
    if (method == "reset" && episode_.empty())
      return fail(Status::corrupt("reset answered without \"episode\", which later questions name"));
    return answer;
  }

 private:
  const std::string url_;
  std::string episode_;
};

}  // namespace

Result<std::unique_ptr<EnvironmentLine>> open_line(const EnvironmentSpec& spec) {
  if (spec.url.empty()) return open_stdio_line(spec);
  return std::make_unique<HttpLine>(spec.url);
}

}  // namespace tandem::envs
