#include "envs/foreign/environment_line.h"

#include "envs/foreign/environment_answers.h"
#include "envs/foreign/stdio_line.h"
#include "wire/json_request.h"

namespace tandem::envs {
namespace {

// POST URL/METHOD with the parameters.
class HttpLine final : public EnvironmentLine {
 public:
  explicit HttpLine(std::string url) : url_(std::move(url)) {}

  Result<Json> ask(const std::string& method, const Json& params, double seconds) override {
    const auto text = TRY(wire::request_json({.url = url_ + "/" + method,
                                              .body = dump_json(params),
                                              .seconds = seconds,
                                              .largest_answer = kLargestEnvironmentAnswer}));
    auto answer = parse_json(text);
    if (!answer) return fail(Status::corrupt("answered no JSON: " + answer.error().message()));
    return answer;
  }
  void tell(const std::string& method, const Json& params) override { (void)ask(method, params, kSecondsToTell); }
  bool is_broken() const override { return false; }

 private:
  const std::string url_;
};

}  // namespace

Result<std::unique_ptr<EnvironmentLine>> open_line(const EnvironmentSpec& spec) {
  if (spec.url.empty()) return open_stdio_line(spec);
  return std::make_unique<HttpLine>(spec.url);
}

}  // namespace tandem::envs
