// What is left out by its name or its content.
#include <algorithm>
#include <array>

#include "envs/sandbox/sources.h"

namespace tandem::envs {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"",      "ignored",   "secret",     "binary",
                                                    "large", "generated", "unreadable", "too many"};

constexpr std::array<std::string_view, 4> kVersionControl = {".git", ".hg", ".svn", ".jj"};
constexpr std::array<std::string_view, 4> kSecretFolders = {".ssh", ".gnupg", ".aws", ".password-store"};
constexpr std::array<std::string_view, 16> kSecretNames = {
    ".env",   ".netrc", "_netrc",   ".npmrc",     ".pypirc",     ".pgpass",      ".htpasswd",    ".vault-token",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "secrets.yml", "secrets.yaml", "secrets.json", "secrets.toml"};
constexpr std::array<std::string_view, 9> kSecretEndings = {
    ".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keystore", ".tfstate", ".git-credentials"};
// Those of .env.* that are there to be read.
constexpr std::array<std::string_view, 4> kSamples = {".example", ".sample", ".template", ".dist"};
constexpr std::array<std::string_view, 9> kGeneratedNames = {
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml",
    "Cargo.lock",        "poetry.lock",         "uv.lock",   "go.sum",
    "composer.lock"};

constexpr size_t kLooked = 8192;            // bytes in which a binary shows itself, as with git
constexpr size_t kLongLine = 1000;          // bytes of a line on average: nobody wrote that
constexpr size_t kLeastGenerated = 20'000;  // bytes below which lines may be as long as they like

template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
template <size_t N>
bool ends_in(const std::array<std::string_view, N>& endings, std::string_view name) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

bool has_private_key(std::string_view content) {
  for (size_t at = content.find("-----BEGIN "); at != std::string_view::npos;
       at = content.find("-----BEGIN ", at + 1)) {
    const auto line = content.substr(at, content.find('\n', at) - at);
    // Code that reads keys names their heading within a text, and has no key behind it.
    const auto behind = content.substr(at + line.size(), 65);
    if (line.find("PRIVATE KEY-----") == std::string_view::npos || behind.size() < 65) continue;
    const auto is_body = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '/'; };
    if (std::all_of(behind.begin() + 1, behind.begin() + 41, is_body)) return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(LeftOut why) { return kNames.at(static_cast<size_t>(why)); }

LeftOut left_out_by_name(std::string_view name, bool is_folder) {
  if (is_folder) {
    if (is_among(kVersionControl, name)) return LeftOut::kIgnored;
    return is_among(kSecretFolders, name) ? LeftOut::kSecret : LeftOut::kNot;
  }
  if (is_among(kSecretNames, name) || ends_in(kSecretEndings, name)) return LeftOut::kSecret;
  if (name.starts_with(".env.") && !ends_in(kSamples, name)) return LeftOut::kSecret;
  return is_among(kGeneratedNames, name) ? LeftOut::kGenerated : LeftOut::kNot;
}

LeftOut left_out_by_content(std::string_view content) {
  if (content.substr(0, kLooked).find('\0') != std::string_view::npos) return LeftOut::kBinary;
  if (has_private_key(content)) return LeftOut::kSecret;
  const auto lines = 1 + static_cast<size_t>(std::count(content.begin(), content.end(), '\n'));
  return content.size() >= kLeastGenerated && content.size() / lines > kLongLine ? LeftOut::kGenerated : LeftOut::kNot;
}

}  // namespace tandem::envs
