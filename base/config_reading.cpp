// How a schema reads its file, the environment and the command line: one pass, all mistakes at once.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <set>

#include "base/config.h"
#include "base/text.h"
#include "base/utf8.h"
#include "base/yaml.h"

extern char** environ;

namespace tandem {

namespace {

// A value as it was written, before a field gives it a type.
struct Written {
  std::vector<std::string> items;  // one of a scalar
  bool list = false;
  bool quoted = false;
};

// Numbers are read here, not by YAML: 010 is no octal, 1e6 is a whole number, 1_000 is a mistake.
std::optional<double> number_of(const std::string& text) {
  if (text.size() > 1 && text[0] == '0' && std::isdigit(static_cast<unsigned char>(text[1]))) return std::nullopt;
  double value = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Result<std::string> chosen(const Field& field, const std::string& text) {
  if (field.choices.empty() || std::find(field.choices.begin(), field.choices.end(), text) != field.choices.end())
    return text;
  const std::vector<std::string_view> choices(field.choices.begin(), field.choices.end());
  return fail(Status::invalid(fmt::format("\"{}\" is not a value of it{}", text, did_you_mean(text, choices))));
}

// "a list of texts, as in [a, b]".
std::string expected_form(const Field& field) {
  std::string form;
  switch (field.type) {
    case FieldType::kBool:
      form = "true or false";
      break;
    case FieldType::kInteger:
      form = "one whole number";
      break;
    case FieldType::kNumber:
      form = "one number";
      break;
    case FieldType::kText:
      form = "one text";
      break;
    case FieldType::kTextList:
      form = "a list of texts";
      break;
  }
  std::string example = field.example;
  if (example.empty() && field.type == FieldType::kTextList) example = dump_json(field.get());
  const bool is_telling = !example.empty() && example != "[]";
  return is_telling ? fmt::format("{}, as in {}: {}", form, field.path.substr(field.path.rfind('.') + 1), example)
                    : form;
}

Status not_of_form(const Field& field, const std::string& found) {
  return Status::invalid(fmt::format("{} was written, expected is {}", found, expected_form(field)));
}

Result<Json> typed(const Field& field, const Written& written) {
  if (written.list != (field.type == FieldType::kTextList))
    return fail(not_of_form(field, written.list ? "a list" : "one value"));
  if (field.type == FieldType::kTextList) {
    Json list = Json::array();
    for (const auto& item : written.items) {
      if (!is_valid_utf8(item)) return fail(Status::invalid("a text of the list is not UTF-8"));
      list.push_back(TRY(chosen(field, item)));
    }
    return list;
  }
  const std::string& text = written.items[0];
  if (field.type == FieldType::kText) {
    if (!is_valid_utf8(text)) return fail(Status::invalid("the text is not UTF-8"));
    return Json(TRY(chosen(field, text)));
  }
  if (field.type == FieldType::kBool) {
    if (!written.quoted && (text == "true" || text == "false")) return Json(text == "true");
    return fail(Status::invalid(fmt::format("\"{}\" is not true or false", text)));
  }
  const auto value = written.quoted ? std::nullopt : number_of(text);
  if (!value) return fail(Status::invalid(fmt::format("\"{}\" is not a number", text)));
  if (field.type == FieldType::kInteger && *value != std::floor(*value)) {
    return fail(Status::invalid(fmt::format("{} is not a whole number", text)));
  }
  const bool is_unset = field.unset && *value == *field.unset;
  if (!is_unset && field.least < field.most && (*value < field.least || *value > field.most)) {
    return fail(Status::invalid(fmt::format("{} is outside {} to {}", text, field.least, field.most)));
  }
  if (field.type == FieldType::kInteger)
    return *value < 0 ? Json(static_cast<int64_t>(*value)) : Json(static_cast<uint64_t>(*value));
  return Json(*value);
}

std::string parent_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(path.substr(0, dot));
}

}  // namespace

// One pass over all sources, collecting what is wrong.
struct Schema::Reading {
  Schema& schema;
  std::vector<std::string> mistakes = {};
  std::vector<fs::path> open_files = {};

  void mistake(const std::string& place, const std::string& what) { mistakes.push_back(place + ": " + what); }

  bool is_section(const std::string& path) const {
    return std::ranges::any_of(schema.fields_, [&](const Field& f) { return f.path.starts_with(path + "."); });
  }

  // A section that was given one value: what can be said of it.
  void section_as_value(const std::string& place, const std::string& path) {
    std::set<std::string> keys;
    for (const Field& f : schema.fields_) {
      if (f.path.starts_with(path + ".")) keys.insert(f.path.substr(0, f.path.find('.', path.size() + 1)));
    }
    mistake(place, fmt::format("{} is a section, and has no value of its own; it has {}", path, fmt::join(keys, ", ")));
  }

  void unknown(const std::string& place, const std::string& path) {
    if (is_section(path)) return section_as_value(place, path);
    const std::string parent = parent_of(path);
    std::set<std::string> siblings;
    std::vector<std::string_view> all;
    for (const Field& f : schema.fields_) {
      all.push_back(f.path);
      if (parent.empty() || f.path.starts_with(parent + ".")) {
        const auto rest = std::string_view(f.path).substr(parent.empty() ? 0 : parent.size() + 1);
        siblings.emplace(rest.substr(0, rest.find('.')));
      }
    }
    const std::string leaf = parent.empty() ? path : path.substr(parent.size() + 1);
    const std::vector<std::string_view> names(siblings.begin(), siblings.end());
    std::string near = nearest(leaf, names);
    if (!near.empty() && !parent.empty()) near = parent + "." + near;
    if (near.empty()) near = nearest(path, all);
    std::string text = fmt::format("unknown key {}", path);
    if (!near.empty()) text += fmt::format("; did you mean {}?", near);
    if (!siblings.empty())
      text += fmt::format(" ({} has {})", parent.empty() ? "the file" : parent, fmt::join(siblings, ", "));
    mistake(place, text);
  }

  const Field* find(const std::string& path) const {
    const auto found = std::ranges::find(schema.fields_, path, &Field::path);
    return found == schema.fields_.end() ? nullptr : &*found;
  }

  // What stands where a value of `path` should: a map, or a list with something else than texts in it.
  void bad_form(const std::string& place, const std::string& path, const std::string& found) {
    const Field* field = find(path);
    field == nullptr ? unknown(place, path)
                     : mistake(place, fmt::format("{}: {}", path, not_of_form(*field, found).message()));
  }

  void assign(const std::string& place, const std::string& path, const Written& written) {
    for (Field& f : schema.fields_) {
      if (f.path != path) continue;
      const auto value = typed(f, written);
      if (!value) return mistake(place, fmt::format("{}: {}", path, value.error().message()));
      f.set(*value);
      schema.origins_[path] = {place};
      return;
    }
    unknown(place, path);
  }

  // Into `written`; what is no text in the list, in words, or nothing.
  static std::string read_items(const YAML::Node& list, Written& written) {
    for (const auto& item : list) {
      if (item.IsScalar()) {
        written.items.push_back(item.Scalar());
        continue;
      }
      const char* const what = item.IsMap() ? "a map" : item.IsSequence() ? "a list" : "nothing";
      return fmt::format("a list with {} as item {}", what, written.items.size() + 1);
    }
    return "";
  }

  void walk(const fs::path& file, const YAML::Node& node, const std::string& prefix) {
    std::map<std::string, int> lines;
    for (const auto& entry : node) {
      const YAML::Mark mark = entry.first.Mark();
      const std::string place = fmt::format("{}:{}:{}", file.string(), mark.line + 1, mark.column + 1);
      if (!entry.first.IsScalar()) {
        mistake(place, "a key must be a plain word");
        continue;
      }
      const std::string key = entry.first.Scalar();
      const std::string path = prefix.empty() ? key : prefix + "." + key;
      if (key.find('.') != std::string::npos) {
        mistake(place, fmt::format("{} has a dot; write a section with keys below it", path));
        continue;
      }
      if (const auto [first, fresh] = lines.emplace(key, mark.line + 1); !fresh) {
        mistake(place, fmt::format("{} stands twice; first on line {}", path, first->second));
        continue;
      }
      if (path == "extends") continue;
      if (key == "<<") {
        mistake(place, "merge keys (<<) are not read; use extends");
        continue;
      }
      const YAML::Node& value = entry.second;
      if (value.IsMap()) {
        is_section(path) ? walk(file, value, path) : bad_form(place, path, "a map of keys");
      } else if (value.IsNull()) {
        mistake(place, fmt::format("{} has no value", path));
      } else {
        Written written{.items = {}, .list = value.IsSequence(), .quoted = value.Tag() == "!"};
        if (value.IsScalar()) written.items.push_back(value.Scalar());
        const std::string found = value.IsSequence() ? read_items(value, written) : "";
        found.empty() ? assign(place, path, written) : bad_form(place, path, found);
      }
    }
  }

  void load(const fs::path& file) {
    if (std::find(open_files.begin(), open_files.end(), file) != open_files.end()) {
      return mistake(file.string(), "extends itself");
    }
    const auto text = read_file(file, 1 << 20);
    if (!text)
      return mistake(file.string(),
                     text.error().code() == Code::kNotFound ? "there is no such file" : text.error().message());
    YAML::Node root;
    try {
      root = load_yaml(*text);
    } catch (const YAML::Exception& error) {
      return mistake(fmt::format("{}:{}:{}", file.string(), error.mark.line + 1, error.mark.column + 1), error.msg);
    }
    if (root.IsNull()) return;
    if (!root.IsMap()) return mistake(file.string(), "must be a map of keys to values");
    open_files.push_back(file);
    if (const YAML::Node base = root["extends"]) {
      const auto one = [&](const YAML::Node& node) {
        const YAML::Mark mark = node.Mark();
        node.IsScalar() ? load((file.parent_path() / node.Scalar()).lexically_normal())
                        : mistake(fmt::format("{}:{}:{}", file.string(), mark.line + 1, mark.column + 1),
                                  "extends: a list of files is expected");
      };
      if (base.IsScalar())
        one(base);
      else if (base.IsSequence())
        for (const auto& node : base) one(node);
      else
        mistake(file.string(), "extends must be a file or a list of files");
    }
    walk(file, root, "");
    open_files.pop_back();
  }

  void assign_text(const std::string& place, const std::string& path, const std::string& text) {
    Written written{.items = {text}};
    if (text.starts_with('[')) {
      try {
        const YAML::Node node = load_yaml(text);
        written = {.items = {}, .list = true};
        if (const std::string found = read_items(node, written); !found.empty()) return bad_form(place, path, found);
      } catch (const YAML::Exception&) {
        return mistake(place, fmt::format("{}: \"{}\" is not a list", path, text));
      }
    }
    assign(place, path, written);
  }

  void environment() {
    constexpr std::string_view kPrefix = "TANDEM__";
    std::map<std::string, std::string> variables;  // by the paths that they set
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view variable(*entry);
      const auto equals = variable.find('=');
      if (!variable.starts_with(kPrefix) || equals == std::string_view::npos) continue;
      std::string path;
      for (const char c : variable.substr(kPrefix.size(), equals - kPrefix.size()))
        path += static_cast<char>(std::tolower(c));
      for (size_t at; (at = path.find("__")) != std::string::npos;) path.replace(at, 2, ".");
      const bool ours = std::ranges::any_of(schema.fields_, [&](const Field& f) { return f.path == path; });
      if (!ours && schema.elsewhere_.contains(path)) continue;
      const std::string place = fmt::format("environment {}", variable.substr(0, equals));
      const auto [other, is_first] = variables.emplace(path, variable.substr(0, equals));
      if (is_first)
        assign_text(place, path, std::string(variable.substr(equals + 1)));
      else
        mistake(place, fmt::format("{} is set by {}, too", path, other->second));
    }
  }

  void command_line(std::span<const std::string> overrides) {
    for (const std::string& override : overrides) {
      const auto equals = override.find('=');
      if (equals == std::string::npos) {
        mistake("command line", fmt::format("\"{}\" is not of the form a.b=value", override));
        continue;
      }
      std::string path = override.substr(0, equals);
      while (path.starts_with('-')) path.erase(0, 1);
      std::replace(path.begin(), path.end(), '-', '_');
      assign_text("command line", path, override.substr(equals + 1));
    }
  }
};

Status Schema::read(const fs::path& file, std::span<const std::string> overrides) {
  Reading reading{*this};
  if (!file.empty()) reading.load(file);
  reading.environment();
  reading.command_line(overrides);
  if (reading.mistakes.empty()) return {};
  return Status::invalid(join(reading.mistakes, "\n"));
}

Status Schema::read_alone(const fs::path& file) {
  Reading reading{*this};
  reading.load(file);
  if (reading.mistakes.empty()) return {};
  return Status::invalid(join(reading.mistakes, "\n"));
}

}  // namespace tandem
