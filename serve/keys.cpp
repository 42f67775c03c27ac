#include "serve/keys.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <memory>

#include "base/book.h"
#include "base/config.h"
#include "base/text.h"

namespace tandem::serve {
namespace {

constexpr uint64_t kMostBytes = uint64_t{16} << 20;
constexpr size_t kLongestKey = 4096, kMostKeys = 1000;
constexpr double kMostTokens = 1e15;

}  // namespace

Keys::Sum Keys::sum_of(std::string_view text) {
  Sum sum;
  crypto_hash_sha256(sum.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  return sum;
}

Status Keys::read_lines() {
  const std::string text = TRY(read_file(path_, kMostBytes));
  int number = 0;
  for (const auto raw : split_lines(text)) {
    ++number;
    const auto line = trim(raw);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.size() > kLongestKey || line.find_first_of(" \t") != std::string_view::npos)
      return fail(Status::invalid("a key is one word of at most 4096 bytes").at(path_.string(), number));
    keys_.push_back({sum_of(line), std::make_shared<const KeyTerms>(KeyTerms{.name = fmt::format("key {}", number)})});
  }
  if (keys_.empty()) return Status::invalid("holds no key: write one a line").at(path_.string());
  return {};
}

Status Keys::read_entries() {
  struct Entry {
    std::string sha256, priority = std::string(name_of(Priority::kAutocomplete));
    KeyTerms terms;
  };
  Schema schema;
  std::vector<std::unique_ptr<Entry>> entries;
  for (auto& name : TRY(entry_names_in(path_, "key", kMostKeys, kMostBytes))) {
    auto& e = *entries.emplace_back(std::make_unique<Entry>());
    e.terms.name = name;
    schema.add(name + ".sha256", e.sha256, "Of the text of the key, 64 hexadecimal digits")
        .add(name + ".priority", e.priority, "The highest class of its requests",
             {kPriorities.begin(), kPriorities.end()})
        .add(name + ".requests_per_minute", e.terms.requests_per_minute, "0: no limit", 0, 1e9)
        .add(name + ".tokens_per_minute", e.terms.tokens_per_minute, "Of prompts and answers; 0: no limit", 0,
             kMostTokens)
        .add(name + ".tokens_per_day", e.terms.tokens_per_day, "The same of 24 hours", 0, kMostTokens)
        .add(name + ".admin", e.terms.admin, "Whether it may change the server")
        .add(name + ".models", e.terms.models, "Names of models that it may use; none: all");
  }
  if (const Status read = schema.read_alone(path_); !read.ok()) return read;
  for (const auto& entry : entries) {
    const std::string& name = entry->terms.name;
    Key key;
    size_t size = 0;
    const std::string& digits = entry->sha256;
    const bool whole =
        sodium_hex2bin(key.sum.data(), key.sum.size(), digits.data(), digits.size(), nullptr, &size, nullptr) == 0 &&
        digits.size() == 2 * key.sum.size();
    if (!whole || size != key.sum.size()) {
      return Status::invalid(fmt::format("{}.sha256 must have 64 hexadecimal digits", name))
          .at(path_.string())
          .hint("`tandem serve new-key` makes a key with them");
    }
    const auto same = std::ranges::find(keys_, key.sum, &Key::sum);
    if (same != keys_.end())
      return Status::invalid(fmt::format("{} and {} are one key", same->terms->name, name)).at(path_.string());
    entry->terms.highest = *priority_of(entry->priority);
    key.terms = std::make_shared<const KeyTerms>(std::move(entry->terms));
    keys_.push_back(std::move(key));
  }
  if (keys_.empty()) return Status::invalid("holds no key").at(path_.string());
  return {};
}

Result<Keys> Keys::read(const fs::path& path) {
  Keys keys(path, false);
  std::error_code error;
  keys.changed_ = fs::last_write_time(path, error);
  TRY(keys.read_lines());
  return keys;
}

Result<Keys> Keys::read_book(const fs::path& path) {
  Keys keys(path, true);
  std::error_code error;
  keys.changed_ = fs::last_write_time(path, error);
  TRY(keys.read_entries());
  return keys;
}

std::shared_ptr<const KeyTerms> Keys::terms_of(const wire::HttpRequest& request) const {
  std::string_view given = request.header("x-api-key");
  constexpr std::string_view kBearer = "bearer ";  // in letters of any size
  const auto header = request.header("authorization");
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (header.size() > kBearer.size() && std::ranges::equal(header.substr(0, kBearer.size()), kBearer, same))
    given = header.substr(kBearer.size());
  if (given.empty()) return nullptr;
  const Sum sum = sum_of(given);
  std::shared_ptr<const KeyTerms> found;
  // All are compared, whichever fits.
  for (const Key& key : keys_) {
    if (sodium_memcmp(sum.data(), key.sum.data(), sum.size()) == 0) found = key.terms;
  }
  return found;
}

std::shared_ptr<const KeyTerms> Keys::terms_named(std::string_view name) const {
  const auto found = std::ranges::find(keys_, name, [](const Key& key) -> std::string_view { return key.terms->name; });
  return found == keys_.end() ? nullptr : found->terms;
}

bool Keys::has_admin() const {
  return std::ranges::any_of(keys_, [](const Key& key) { return key.terms->admin; });
}

Result<bool> Keys::refresh(bool surely) {
  std::error_code error;
  const auto changed = fs::last_write_time(path_, error);
  if (!surely && (error || changed == changed_)) return false;
  changed_ = changed;
  keys_ = TRY(book_ ? read_book(path_) : read(path_)).keys_;
  return true;
}

NewKey make_key() {
  if (sodium_init() < 0) abort();  // no randomness on this machine: no key may be made
  std::array<unsigned char, 32> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  NewKey key;
  key.text.resize(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_URLSAFE_NO_PADDING));
  sodium_bin2base64(key.text.data(), key.text.size(), bytes.data(), bytes.size(),
                    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  key.text.pop_back();  // its end mark
  std::array<unsigned char, 32> sum;
  crypto_hash_sha256(sum.data(), reinterpret_cast<const unsigned char*>(key.text.data()), key.text.size());
  key.sha256.resize(2 * sum.size() + 1);
  sodium_bin2hex(key.sha256.data(), key.sha256.size(), sum.data(), sum.size());
  key.sha256.pop_back();
  return key;
}

}  // namespace tandem::serve
