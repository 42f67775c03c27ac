#include "envs/packages/pypi_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kLongestProject = 128;

bool is_letter_or_digit_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string text_of(const Json& object, const char* key) {
  return object.contains(key) && object.at(key).is_string() ? object.at(key).get<std::string>() : std::string();
}

// PEP 714: core-metadata, formerly dist-info-metadata; an object with the digest, or true without one.
PackageDigest metadata_of(const Json& file) {
  for (const char* key : {"core-metadata", "dist-info-metadata", "data-dist-info-metadata"}) {
    if (file.contains(key) && file.at(key).is_object()) return PackageDigest::sha256(text_of(file.at(key), "sha256"));
  }
  return {};
}

// The name becomes part of an address of ours.
bool add_file(PypiFile file, const Url& page, std::string_view reference, PypiPage& to) {
  if (!is_plain_path(file.name) || file.name.find('/') != std::string::npos) return false;
  auto url = page.resolve(reference);
  if (!url) return false;
  file.url = std::move(*url);
  to.files.push_back(std::move(file));
  return to.files.size() <= kMostPypiFiles;
}

Result<PypiPage> parse_json_page(std::string_view text, const std::string& project, const Url& url) {
  const auto json = TRY(parse_json(text));
  if (!json.is_object() || !json.contains("files") || !json.at("files").is_array())
    return fail(Status::invalid("it is no page of a simple index"));
  PypiPage page{.name = project, .files = {}};
  for (const auto& file : json.at("files")) {
    if (!file.is_object()) continue;
    PypiFile one{.name = text_of(file, "filename"),
                 .requires_python = text_of(file, "requires-python"),
                 .uploaded = text_of(file, "upload-time"),
                 .metadata = metadata_of(file)};
    if (file.contains("hashes") && file.at("hashes").is_object())
      one.digest = PackageDigest::sha256(text_of(file.at("hashes"), "sha256"));
    if (file.contains("yanked") && (file.at("yanked").is_string() || file.at("yanked").is_boolean()))
      one.yanked = file.at("yanked");
    if (file.contains("size") && file.at("size").is_number_integer() && file.at("size").get<double>() >= 0)
      one.bytes = file.at("size").get<uint64_t>();
    add_file(std::move(one), url, text_of(file, "url"), page);
    if (page.files.size() > kMostPypiFiles) return fail(Status::invalid("it names too many files"));
  }
  return page;
}

std::string unescaped(std::string_view text) {
  static const std::map<std::string_view, char> kNamed = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  std::string plain;
  while (!text.empty()) {
    const size_t end = text.front() == '&' ? text.substr(0, 12).find(';') : std::string_view::npos;
    if (end == std::string_view::npos) {
      plain += text.front();
      text.remove_prefix(1);
      continue;
    }
    const auto name = text.substr(1, end - 1);
    if (const auto known = kNamed.find(name); known != kNamed.end()) {
      plain += known->second;
    } else {
      int value = 0;
      for (const char c : name.substr(std::min<size_t>(1, name.size())))
        value = c >= '0' && c <= '9' && value < 1000 ? value * 10 + (c - '0') : 1000;
      if (name.starts_with('#') && value >= 32 && value < 127)
        plain += static_cast<char>(value);
      else
        plain += text.substr(0, end + 1);
    }
    text.remove_prefix(end + 1);
  }
  return plain;
}

std::map<std::string, std::string> attributes_of(std::string_view tag) {
  std::map<std::string, std::string> attributes;
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!tag.empty()) {
    while (!tag.empty() && is_space(tag.front())) tag.remove_prefix(1);
    size_t end = 0;
    while (end < tag.size() && !is_space(tag[end]) && tag[end] != '=') ++end;
    std::string name(tag.substr(0, end));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    tag.remove_prefix(end);
    std::string_view value;
    if (tag.starts_with('=')) {
      tag.remove_prefix(1);
      const char quote = !tag.empty() && (tag.front() == '"' || tag.front() == '\'') ? tag.front() : '\0';
      if (quote != '\0') tag.remove_prefix(1);
      size_t stop = 0;
      while (stop < tag.size() && (quote != '\0' ? tag[stop] != quote : !is_space(tag[stop]))) ++stop;
      value = tag.substr(0, stop);
      tag.remove_prefix(std::min(stop + (quote != '\0' ? 1 : 0), tag.size()));
    }
    if (!name.empty()) attributes.emplace(std::move(name), unescaped(value));
  }
  return attributes;
}

// The end of a tag: not one that stands in quotes.
size_t end_of_tag(std::string_view text, size_t from) {
  char quote = '\0';
  for (size_t i = from; i < text.size(); ++i) {
    if (quote != '\0') {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '>') {
      return i;
    }
  }
  return std::string_view::npos;
}

PackageDigest digest_from(std::string_view text) {
  constexpr std::string_view kKind = "sha256=";
  return text.starts_with(kKind) ? PackageDigest::sha256(text.substr(kKind.size(), 64)) : PackageDigest();
}

Result<PypiPage> parse_html_page(std::string_view text, const std::string& project, const Url& url) {
  PypiPage page{.name = project, .files = {}};
  bool is_html = false;
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
    if (text.substr(at).starts_with("<!--")) {
      at = text.find("-->", at);
      continue;
    }
    const size_t end = end_of_tag(text, at);
    if (end == std::string_view::npos) break;
    const auto tag = text.substr(at + 1, end - at - 1);
    is_html = true;
    at = end;
    if (tag.size() < 2 || (tag[0] | 0x20) != 'a' || std::isalnum(static_cast<unsigned char>(tag[1]))) continue;
    const auto attributes = attributes_of(tag.substr(1));
    const auto href = attributes.find("href");
    if (href == attributes.end()) continue;
    const auto said = [&](const char* name) {
      const auto found = attributes.find(name);
      return found == attributes.end() ? std::string() : found->second;
    };
    const std::string& address = href->second;
    const auto place = address.substr(0, address.find_first_of("?#"));
    PypiFile file{.name = percent_decoded(place.substr(place.rfind('/') + 1)),
                  .requires_python = said("data-requires-python")};
    if (const size_t mark = address.find('#'); mark != std::string::npos)
      file.digest = digest_from(address.substr(mark + 1));
    if (attributes.contains("data-yanked"))
      file.yanked = said("data-yanked").empty() ? Json(true) : Json(said("data-yanked"));
    for (const char* name : {"data-core-metadata", "data-dist-info-metadata"}) {
      if (!file.metadata) file.metadata = digest_from(said(name));
    }
    add_file(std::move(file), url, address, page);
    if (page.files.size() > kMostPypiFiles) return fail(Status::invalid("it names too many files"));
  }
  if (!is_html) return fail(Status::invalid("it is no page of a simple index"));
  return page;
}

}  // namespace

bool PypiPage::has_dates() const {
  return std::ranges::all_of(files, [](const PypiFile& file) { return !file.uploaded.empty(); });
}

std::string normalised_project(std::string_view name) {
  if (name.empty() || name.size() > kLongestProject || !is_letter_or_digit_of_name(name.front()) ||
      !is_letter_or_digit_of_name(name.back()))
    return "";
  std::string normal;
  for (const char c : name) {
    const bool mark = c == '-' || c == '_' || c == '.';
    if (!mark && !is_letter_or_digit_of_name(c)) return "";
    if (mark && normal.ends_with('-')) continue;
    normal += mark ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return normal;
}

Result<PypiPage> parse_pypi_page(std::string_view text, const std::string& project, const Url& url) {
  const auto begun = trim(text);
  return begun.starts_with('{') ? parse_json_page(text, project, url) : parse_html_page(text, project, url);
}

PypiPage offered(const PypiPage& page, const std::string& date) {
  PypiPage kept{.name = page.name, .files = {}};
  for (const auto& file : page.files) {
    if (file.digest && (date.empty() || file.uploaded < date)) kept.files.push_back(file);
  }
  return kept;
}

std::string write_pypi_page(const PypiPage& page, PypiForm form) {
  const auto place = [&](const PypiFile& file) { return "../../files/" + page.name + "/" + file.name; };
  if (form == PypiForm::kHtml) {
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" "
        "content=\"1.0\"><title>{0}</title></head><body>\n",
        escape_html(page.name));
    for (const auto& file : page.files) {
      html += fmt::format("<a href=\"{}#sha256={}\"", escape_html(place(file)), file.digest.hex);
      if (!file.requires_python.empty())
        html += fmt::format(" data-requires-python=\"{}\"", escape_html(file.requires_python));
      if (file.metadata)
        html +=
            fmt::format(" data-core-metadata=\"sha256={0}\" data-dist-info-metadata=\"sha256={0}\"", file.metadata.hex);
      if (file.yanked.is_string() || file.yanked == Json(true))
        html += fmt::format(" data-yanked=\"{}\"",
                            escape_html(file.yanked.is_string() ? file.yanked.get<std::string>() : ""));
      html += fmt::format(">{}</a>\n", escape_html(file.name));
    }
    return html + "</body></html>\n";
  }
  Json files = Json::array();
  for (const auto& file : page.files) {
    Json one = {{"filename", file.name},
                {"url", place(file)},
                {"hashes", Json::object({{"sha256", file.digest.hex}})},
                {"yanked", file.yanked}};
    if (!file.requires_python.empty()) one["requires-python"] = file.requires_python;
    if (!file.uploaded.empty()) one["upload-time"] = file.uploaded;
    if (file.bytes) one["size"] = *file.bytes;
    // By its later name alone: pip 22.3 to 23.0 end with an exception where a page in JSON has the former (PEP 714).
    one["core-metadata"] = file.metadata ? Json::object({{"sha256", file.metadata.hex}}) : Json(false);
    files.push_back(std::move(one));
  }
  return dump_json(
      {{"meta", Json::object({{"api-version", "1.0"}})}, {"name", page.name}, {"files", std::move(files)}});
}

}  // namespace tandem::envs
