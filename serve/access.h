// Access control of a server: keys and admins, quotas of each, current admin rules about requests, and who used how
// much.
//
// Thread safety: none; the server's loop owns it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "serve/keys.h"
#include "serve/quota.h"
#include "serve/rules.h"
#include "serve/usage_log.h"
#include "wire/http_server.h"

namespace tandem::serve {

struct AccessSettings {
  fs::path key_file, key_book;  // at most one; neither: whoever reaches the server may use it
  fs::path admin_key_file;      // with the admins of the book; none of both: nothing can be changed while it runs
  double address_requests_per_minute = 0;  // of all that come from one address; 0: no limit
  fs::path usage_log;                      // empty: none
  // Key of a gateway, which names the caller it asks for in X-Tandem-Caller; empty: there is none. It is a key of
  // the two files above as well.
  fs::path front_key_file = {};
};

class Access {
 public:
  // Reads the files. What the log says of the last day counts towards the limits of this one.
  static Result<std::unique_ptr<Access>> open(const AccessSettings& settings, const Clock& clock);

  // 401 or 403 for who may not use the server at all.
  std::optional<wire::HttpResponse> refuse(const wire::HttpRequest& request) const;
  // Who sent a request that was not refused: its key, or without keys its address.
  std::shared_ptr<const KeyTerms> caller(const wire::HttpRequest& request) const;
  // Whether there may be requests of a key of this name; without keys, of any.
  bool may_have_key(std::string_view name) const { return !keys_ || front_ || keys_->terms_named(name) != nullptr; }
  // The name of the admin's key that the request brings; else why it may not use `path`, for a 403.
  Result<std::string> admin_of(std::string_view path, const wire::HttpRequest& request) const;

  // 429 where the caller, or all that come from its address, have asked for as much as they may. Counts the request.
  std::optional<wire::HttpResponse> take_on(const KeyTerms& caller, const std::string& address);
  // 403 or 503 where a rule refuses it; else the class that it is of.
  std::optional<wire::HttpResponse> refuse(const RuleSubject& subject) const;
  Priority priority_of(const RuleSubject& subject) const { return rules_.priority_of(subject); }
  void charge(const KeyTerms& caller, uint64_t tokens) {
    quota_.charge(caller, static_cast<double>(tokens), clock_.now());
  }
  void log(const UsageLine& usage) { log_.write(usage); }

  Rules& rules() { return rules_; }
  // Reads keys again where their files have changed; in any case where `surely`, with the usage log opened again. A
  // file that cannot be read leaves them.
  void refresh(bool surely = false);

 private:
  Access(std::optional<Keys> keys, std::optional<Keys> admins, std::optional<Keys> front, UsageLog log,
         double address_limit, const Clock& clock)
      : keys_(std::move(keys)),
        admins_(std::move(admins)),
        front_(std::move(front)),
        log_(std::move(log)),
        address_limit_(address_limit),
        clock_(clock) {}
  Status read_past();
  std::shared_ptr<const KeyTerms> admin(const wire::HttpRequest& request) const;

  std::optional<Keys> keys_, admins_, front_;
  UsageLog log_;
  const double address_limit_;
  const Clock& clock_;
  Quota quota_;
  Rules rules_;
};

}  // namespace tandem::serve
