#include "serve/access.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cmath>

#include "serve/api_error.h"

namespace tandem::serve {
namespace {

constexpr double kDaySeconds = 86400;

}  // namespace

Result<std::unique_ptr<Access>> Access::open(const AccessSettings& settings, const Clock& clock) {
  if (!settings.key_file.empty() && !settings.key_book.empty())
    return fail(
        Status::invalid("serve.api_key_file and serve.keys are both set; keys of the file can stand in the book"));
  std::optional<Keys> keys, admins, front;
  if (!settings.key_file.empty()) keys = TRY(Keys::read(settings.key_file));
  if (!settings.key_book.empty()) keys = TRY(Keys::read_book(settings.key_book));
  if (!settings.admin_key_file.empty()) admins = TRY(Keys::read(settings.admin_key_file));
  if (!settings.front_key_file.empty()) front = TRY(Keys::read(settings.front_key_file));
  std::unique_ptr<Access> access(new Access(std::move(keys), std::move(admins), std::move(front),
                                            TRY(UsageLog::open(settings.usage_log)),
                                            settings.address_requests_per_minute, clock));
  TRY(access->read_past());
  return access;
}

Status Access::read_past() {
  if (!keys_) return {};
  const double now = clock_.unix_seconds();
  return log_.visit_since(now - kDaySeconds, [&](const std::string& key, double tokens, double time) {
    const auto terms = keys_->terms_named(key);
    if (terms) quota_.charge(*terms, tokens, clock_.now() - from_seconds(std::max(0.0, now - time)));
  });
}

std::shared_ptr<const KeyTerms> Access::admin(const wire::HttpRequest& request) const {
  auto terms = admins_ ? admins_->terms_of(request) : nullptr;
  if (terms) return terms;
  terms = keys_ ? keys_->terms_of(request) : nullptr;
  return terms && terms->admin ? terms : nullptr;
}

std::optional<wire::HttpResponse> Access::refuse(const wire::HttpRequest& request) const {
  const std::string host(request.header("host"));
  if (const auto origin = request.header("origin");
      !origin.empty() && origin != "http://" + host && origin != "https://" + host && !keys_)
    return error_response(403, "Origin: requests of web pages need a server with keys");
  if (request.path == "/health" || request.path == "/ready") return std::nullopt;
  if (!keys_ || keys_->terms_of(request) || admin(request)) return std::nullopt;
  auto response = error_response(401, "Authorization: must be \"Bearer\" and a key of this server");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::shared_ptr<const KeyTerms> Access::caller(const wire::HttpRequest& request) const {
  // The gateway has asked for the caller's key, and kept to its limits.
  if (const auto name = request.header("x-tandem-caller"); !name.empty() && front_ && front_->terms_of(request))
    return std::make_shared<const KeyTerms>(KeyTerms{.name = std::string(name)});
  if (!keys_) return std::make_shared<const KeyTerms>(KeyTerms{.name = request.peer});
  if (auto terms = keys_->terms_of(request)) return terms;
  const auto terms = admin(request);
  return std::make_shared<const KeyTerms>(KeyTerms{.name = terms ? "admin " + terms->name : ""});
}

Result<std::string> Access::admin_of(std::string_view path, const wire::HttpRequest& request) const {
  if (!admins_ && !(keys_ && keys_->has_admin())) {
    return fail(Status::invalid(
        fmt::format("{} needs an admin's key, and this server has none: start it with --admin-key-file", path)));
  }
  const auto who = admin(request);
  if (!who) return fail(Status::invalid(fmt::format("{} needs the key of an admin", path)));
  return who->name;
}

std::optional<wire::HttpResponse> Access::take_on(const KeyTerms& caller, const std::string& address) {
  const Time now = clock_.now();
  const KeyTerms of_address{.name = "address " + address, .requests_per_minute = address_limit_};
  for (const KeyTerms* const one : {&of_address, &caller}) {
    const auto refusal = quota_.ask(*one, now);
    if (!refusal) continue;
    auto response = error_response(429, fmt::format("{} has used up its {}; try again later",
                                                    one == &caller ? "this key" : "this address", refusal->says));
    response.headers.emplace_back("Retry-After", fmt::format("{}", std::ceil(to_seconds(refusal->retry_after))));
    return response;
  }
  return std::nullopt;
}

std::optional<wire::HttpResponse> Access::refuse(const RuleSubject& subject) const {
  const Rule* const rule = rules_.refusing(subject);
  if (rule == nullptr) return std::nullopt;
  const auto why = rule->reason.empty() ? std::string() : ": " + rule->reason;
  if (rule->action == RuleAction::kBlock)
    return error_response(403, fmt::format("requests of this {} are blocked{}", name_of(rule->of), why));
  auto response = error_response(503, fmt::format("no new requests of this {} are taken on{}", name_of(rule->of), why));
  response.headers.emplace_back("Retry-After", "30");
  return response;
}

void Access::refresh(bool surely) {
  const auto again = [&](std::optional<Keys>& keys, const char* whose) {
    const auto read = keys ? keys->refresh(surely) : Result<bool>(false);
    if (!read) spdlog::error("the {} stay as they are: {}", whose, read.error().to_string());
    if (read && *read) spdlog::info("the {} were read again", whose);
  };
  const Status reopened = surely ? log_.reopen() : Status();
  if (!reopened.ok()) spdlog::error("the usage log stays as it is: {}", reopened.to_string());
  again(keys_, "keys");
  again(admins_, "admins' keys");
}

}  // namespace tandem::serve
