#include "envs/tasks/dockerfile.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text.h"
#include "envs/tasks/docker_scope.h"
#include "envs/tasks/docker_shell.h"
#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tasks/dockerignore.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/network_use.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kSayNothing[] = {"LABEL",      "CMD",         "EXPOSE",     "MAINTAINER",
                                            "ENTRYPOINT", "HEALTHCHECK", "STOPSIGNAL", "USER"};

// ENV and ARG, which have them too, are read by their values.
constexpr std::string_view kHaveVariables[] = {"ADD", "COPY", "VOLUME", "WORKDIR"};

bool is_same_name(const std::string& a, const std::string& b) { return strcasecmp(a.c_str(), b.c_str()) == 0; }

class DockerfileReader {
 public:
  DockerfileReader(const fs::path& context, std::string workdir, std::span<const std::string_view> hidden,
                   const BuildInputs& inputs, Mistakes& mistakes)
      : context_(context),
        file_((context / "Dockerfile").string()),
        hidden_(hidden),
        inputs_(inputs),
        mistakes_(mistakes),
        scope_(inputs.arguments) {
    build_.workdir = std::move(workdir);
  }

  Build run(const std::string& text) {
    const auto instructions = docker_instructions(text);
    // The last folder is the workspace, so it must be known before anything is copied into it.
    bool has_workdir = false;
    for (const auto& each : instructions) {
      if (each.name == "FROM") scope_.begin();
      if (each.name == "ENV" || each.name == "ARG") (void)scope_.note(each);
      if (each.name != "WORKDIR") continue;
      build_.workdir = absolute_path(build_.workdir, docker_unquoted(expanded(each.rest)));
      has_workdir = true;
    }
    if (!has_workdir && !inputs_.workdir.empty()) build_.workdir = inputs_.workdir;
    folder_ = build_.workdir;
    begin_where_wanted();
    root_ = build_.root();
    scope_ = DockerScope(inputs_.arguments);
    bool first = true;
    for (const auto& each : instructions) {
      if (each.name == "FROM") scope_.begin();
      if (first && each.name != "FROM" && each.name != "ARG") refuse(each, "a Dockerfile begins with FROM");
      first = first && each.name == "ARG";
      follow(each);
    }
    drop_ignored();
    const auto& target = inputs_.target;
    if (!target.empty() && !is_same_name(stage_, target) && std::to_string(stages_ - 1) != target)
      mistakes_.add(file_, 0,
                    fmt::format("has no stage \"{}\" at its end, which docker-compose names as target", target));
    return std::move(build_);
  }

 private:
  // The outer one of two folders is the workspace; a folder within /workspace needs no other.
  void begin_where_wanted() {
    const auto wanted = inputs_.workdir.empty() ? build_.workdir : inputs_.workdir;
    if (wanted == build_.workdir) return;
    const auto own = build_.root(), other = Build{.workdir = wanted}.root();
    const auto lies_in = [](const std::string& a, const std::string& b) { return a == b || a.starts_with(b + "/"); };
    if (!lies_in(own, other) && !lies_in(other, own)) {
      return mistakes_.add(file_, 0,
                           fmt::format("the last WORKDIR is {}, {} {}; followed is the same folder, one within the "
                                       "other, or both in /workspace",
                                       build_.workdir, inputs_.workdir_key, wanted));
    }
    build_.workspace = std::min(own, other);  // the shorter one is the beginning of the other
    build_.workdir = wanted;
  }

  void refuse(const DockerInstruction& at, const std::string& why) {
    mistakes_.add(file_, at.line, fmt::format("{}: {}", at.name, why));
  }

  std::string expanded(const std::string& text) const { return scope_.expanded(text); }

  void follow(const DockerInstruction& each) {
    if (std::ranges::find(kHaveVariables, each.name) != std::end(kHaveVariables)) {
      if (const auto read = scope_.replaced(each.rest); !read) return refuse(each, read.error().message());
    }
    if (each.name == "FROM") {
      if (++stages_ > 1) refuse(each, "builds of several stages are not followed");
      const auto words = docker_words(each.rest).value_or(std::vector<std::string>());
      const bool is_named = words.size() > 2 && is_same_name(words[words.size() - 2], "as");
      stage_ = is_named ? words.back() : "";
      shell_.begin(each.rest);
    } else if (each.name == "WORKDIR") {
      folder_ = absolute_path(folder_, docker_unquoted(expanded(each.rest)));
      if (!inside(folder_)) (void)add_folder(folder_);
    } else if (each.name == "COPY" || each.name == "ADD") {
      copy(each);
    } else if (each.name == "ENV") {
      const auto noted = scope_.note(each);
      if (!noted) return refuse(each, noted.error().message());
      auto pairs = *noted;
      // Values of one instruction know the variables as they were before it.
      if (names_itself(pairs)) std::reverse(pairs.begin(), pairs.end());
      for (const auto& [name, value] : pairs) {
        const auto environment = name == "PATH" ? scope_.virtual_environment_on(scope_.value(value)) : "";
        if (!environment.empty()) {
          refuse(each,
                 fmt::format("PATH leads to the Python of the virtual environment {}, which is not followed: tests "
                             "run the system's; followed is a plain `pip install NAME...` for that",
                             environment));
        }
        set(each, name, value);
      }
    } else if (each.name == "ARG") {
      if (const auto noted = scope_.note(each); !noted) refuse(each, noted.error().message());
    } else if (each.name == "RUN") {
      command(each);
    } else if (each.name == "VOLUME") {
      for (const auto& word : docker_words(expanded(each.rest)).value_or(std::vector<std::string>())) {
        if (!inside(word) && !add_folder(word))
          refuse(each, word + " cannot be a folder here");
        else
          export_by("mkdir -p " + shell_quoted(word));  // empty ones are not carried over to tests
      }
    } else if (each.name == "SHELL") {
      if (const Status status = shell_.change(each.rest); !status) refuse(each, status.message());
    } else if (std::find(std::begin(kSayNothing), std::end(kSayNothing), each.name) == std::end(kSayNothing)) {
      refuse(each,
             "not supported; supported are FROM, ARG, WORKDIR, COPY, ADD, ENV, RUN, SHELL and VOLUME, and USER, CMD, "
             "ENTRYPOINT and the like, which say nothing here");
    }
  }

  // ---- Where things lie ----

  // The path below the workspace; "" is its root.
  std::optional<std::string> inside(const std::string& path) const {
    if (path == root_) return "";
    if (path.starts_with(root_ + "/")) return path.substr(root_.size() + 1);
    return std::nullopt;
  }

  // A folder of the root beside the workspace; false where there can be none.
  bool add_folder(const std::string& path) {
    if (!path.starts_with('/') || path.size() < 2) return false;
    const auto top = std::string(split(path, '/').at(1));
    if (!can_be_folder(top)) return false;
    if ("/" + top != root_) build_.folders.insert("/" + top);
    return true;
  }

  // As a path of a task's files: relative to the workspace, or absolute beside it.
  std::optional<std::string> place_of(const std::string& path) {
    if (auto below = inside(path)) return below;
    if (!add_folder(path)) return std::nullopt;
    return path;
  }

  // ---- COPY ----

  void copy(const DockerInstruction& each) {
    auto text = expanded(each.rest);
    bool makes_programs = false;
    while (text.starts_with("--")) {
      const size_t end = std::min(text.find_first_of(" \t"), text.size());
      const auto flag = text.substr(0, end);
      const bool silent = flag.starts_with("--chown=") || flag == "--link" || flag.starts_with("--link=");
      if (!silent && !flag.starts_with("--chmod=")) return refuse(each, flag + " is not supported");
      if (flag.starts_with("--chmod=")) makes_programs = flag.find_first_of("1357x", 8) != std::string::npos;
      text = std::string(trim(text.substr(end)));
    }
    auto words = docker_words(text);
    if (!words) return refuse(each, "is neither words nor a list of words");
    if (words->size() < 2) return refuse(each, "needs a source and a destination");
    const auto target = words->back();
    words->pop_back();
    const auto place = place_of(absolute_path(folder_, target));
    if (!place) {
      return refuse(each, fmt::format("{} lies outside of WORKDIR {}, in a folder that is the system's or the grader's",
                                      target, build_.workdir));
    }
    const bool many = words->size() > 1;
    size_t number = 0;
    for (const auto& source : *words) {
      if (source.starts_with("<<")) {
        if (number < each.texts.size()) put_text(each.texts[number], *place, target, many);
        ++number;
      } else if (each.name == "ADD" && is_docker_archive(source)) {
        unpack(each, source, *place, target);
      } else {
        copy_source(each, source, *place, target, many);
      }
    }
    if (makes_programs) {
      for (const auto& [path, content] : build_.files) {
        if (path == *place || path.starts_with(*place + "/")) build_.programs.insert(path);
      }
    }
    // The recipe itself is no part of what the model meets.
    build_.files.erase("Dockerfile");
    build_.files.erase(".dockerignore");
  }

  void put_text(const TextInPlace& text, const std::string& place, const std::string& target, bool many) {
    const bool into = many || target.ends_with('/') || place.empty();
    const auto path = into ? (fs::path(place) / text.name).string() : place;
    build_.files[path] = text.is_literal ? text.content : expanded(text.content);
  }

  void unpack(const DockerInstruction& each, const std::string& source, const std::string& place,
              const std::string& target) {
    copy_source(each, source, place, target.ends_with('/') ? target : target + "/", true);
    const auto name = shell_quoted(fs::path(source).filename().string());
    run_by(fmt::format("(cd {} && tar -xf {} && rm {})", shell_quoted(absolute_path(folder_, target)), name, name));
  }

  void copy_source(const DockerInstruction& each, const std::string& source, const std::string& place,
                   const std::string& target, bool many) {
    if (source.find("://") != std::string::npos || source.starts_with("git@"))
      return refuse(each, "there is no network to copy " + source + " from");
    const auto relative = fs::path(source).lexically_normal().relative_path();
    if (relative.string().starts_with("..")) return refuse(each, source + " leads out of the environment folder");
    std::vector<fs::path> paths = {relative};
    if (source.find_first_of("*?[") != std::string::npos) {
      paths = matching(relative);
      if (paths.empty()) return refuse(each, source + " matches nothing");
    }
    for (const auto& path : paths) copy_path(each, path, place, target, many || paths.size() > 1);
  }

  // Files that match a pattern in the last part of a path.
  std::vector<fs::path> matching(const fs::path& pattern) const {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(context_ / pattern.parent_path(), error)) {
      const auto name = entry.path().filename();
      if (is_hidden(pattern.parent_path() / name)) continue;
      if (fnmatch(pattern.filename().c_str(), name.c_str(), 0) == 0) found.push_back(pattern.parent_path() / name);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  bool is_hidden(const fs::path& relative) const {
    return !relative.empty() && std::find(hidden_.begin(), hidden_.end(), *relative.begin()) != hidden_.end();
  }

  void copy_path(const DockerInstruction& each, const fs::path& relative, const std::string& place,
                 const std::string& target, bool many) {
    if (is_hidden(relative)) {
      return refuse(each, fmt::format("{} would show {} to the model; name the files", relative.string(),
                                      relative.begin()->string()));
    }
    std::error_code error;
    const fs::path from = context_ / relative;
    const bool is_folder = fs::is_directory(from, error);
    const bool into = target.ends_with('/') || target == "." || place.empty() || many;
    std::string path = place;
    if (!is_folder && into) path = (fs::path(path) / relative.filename()).string();
    // Absolute paths are those of the root.
    const bool beside = path.starts_with('/');
    Files files;
    std::set<std::string> programs;
    const auto added = add_folder_files(from, beside ? path.substr(1) : path, files, programs);
    if (!added) return refuse(each, added.message());
    const bool whole = relative.empty() || relative == ".";
    const auto prefix = beside ? path.substr(1) + "/" : path.empty() ? "" : path + "/";
    for (auto& [name, content] : files) {
      if (whole && is_hidden(name.substr(prefix.size()))) continue;
      const auto key = beside ? "/" + name : name;
      if (programs.contains(name)) build_.programs.insert(key);
      build_.files[key] = std::move(content);
      sources_[key] =
          whole ? name.substr(prefix.size()) : (relative / fs::path(name).lexically_relative(prefix)).string();
    }
    if (const auto fits = check_size(build_.files); !fits) refuse(each, fits.message());
  }

  // What .dockerignore leaves out of the context.
  void drop_ignored() {
    std::error_code error;
    const bool has_own = fs::exists(context_ / "Dockerfile.dockerignore", error);
    const auto text = read_file(context_ / (has_own ? "Dockerfile.dockerignore" : ".dockerignore"), 1 << 20);
    if (!text) return;
    const DockerIgnore ignore(*text);
    for (const auto& [key, source] : sources_) {
      if (!ignore.leaves_out(source)) continue;
      build_.files.erase(key);
      build_.programs.erase(key);
    }
  }

  // ---- Variables ----

  void export_by(std::string command) {
    build_.steps.push_back(command);
    build_.exports.push_back(std::move(command));
  }

  void run_by(std::string command) {
    build_.steps.push_back(command);
    build_.commands.push_back(std::move(command));
  }

  void set(const DockerInstruction& each, const std::string& name, const std::string& value) {
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
      return refuse(each, "\"" + name + "\" is no name");
    export_by("export " + name + "=" + quoted_for_bash(value));
  }

  // ---- RUN ----

  void command(const DockerInstruction& each) {
    const auto command = docker_command(each);
    if (!command) return refuse(each, command.error().message());
    const auto& texts = command->texts;
    const auto run = docker_run(command->text);
    if (!run.python_packages.empty()) {
      if (const auto name = scope_.variable_of_pip(); !name.empty())
        return refuse(each,
                      fmt::format("pip install is not followed where {} says where packages come from or go to", name));
    }
    build_.packages.insert(build_.packages.end(), run.packages.begin(), run.packages.end());
    build_.python_packages.insert(build_.python_packages.end(), run.python_packages.begin(), run.python_packages.end());
    for (const auto& [name, program] : run.names) {
      if (const auto there = find_program(name); !there.empty() && !is_of_system(program)) {
        return refuse(each,
                      fmt::format("{} in the name of {}, which a model could write, would be what tests run; give "
                                  "it another name",
                                  program, there));
      }
      export_by(fmt::format("{{ mkdir -p ~/.local/bin && ln -sf {} ~/.local/bin/{}; }}", shell_quoted(program), name));
    }
    if (run.command.empty()) return;
    if (const auto maker = maker_of_python(run.command); !maker.empty())
      return refuse(each,
                    fmt::format("`{}` makes a Python of its own, whose links do not reach the tests; followed is a "
                                "plain `pip install NAME...` for the system's Python",
                                maker));
    auto user = network_user_of_lines(expanded(run.command));
    if (user.empty() && runs_shell(run.command)) user = network_user_of_lines(texts);
    if (user.empty() && runs_python(run.command)) user = python_network_user(texts);
    if (user.empty()) user = network_user_of_files(run.command);
    if (user.starts_with("pip"))
      return refuse(each, why_no_network(user) + "; followed is a plain `pip install NAME...` for the system's Python");
    if (!user.empty()) return refuse(each, why_no_network(user));
    for (const auto& folder : named_folders(run.command)) (void)add_folder(folder);
    if (!inside(folder_) && !add_folder(folder_))
      return refuse(each, fmt::format("runs in {}, a folder of the system", folder_));
    run_by(fmt::format("({0}mkdir -p {1} && cd {1} && {2})", scope_.exports(), shell_quoted(folder_),
                       shell_.line(*command, run)));
  }

  // Looks into scripts that were copied and that a command names.
  std::string network_user_of_files(const std::string& command) const {
    for (const auto& word : docker_words(command).value_or(std::vector<std::string>())) {
      const auto path = absolute_path(folder_, word);
      const auto file = build_.files.find(inside(path).value_or(path));
      if (file == build_.files.end()) continue;
      const bool in_python =
          word.ends_with(".py") || file->second.substr(0, file->second.find('\n')).find("python") != std::string::npos;
      const bool in_shell = word.ends_with(".sh") || file->second.starts_with("#!");
      auto user = in_python ? python_network_user(file->second) : in_shell ? network_user_of_lines(file->second) : "";
      if (!user.empty()) return user;
    }
    return "";
  }

  const fs::path context_;
  const std::string file_;
  const std::span<const std::string_view> hidden_;
  const BuildInputs& inputs_;
  Mistakes& mistakes_;
  Build build_;
  std::string root_;    // Build::root, of the last WORKDIR
  std::string folder_;  // where the instruction at hand is
  DockerScope scope_;
  DockerShell shell_;
  std::map<std::string, std::string> sources_;  // of files, their paths in the context
  int stages_ = 0;
  std::string stage_;  // the name of the last one
};

}  // namespace

Build read_dockerfile(const fs::path& context, const std::string& workdir, std::span<const std::string_view> hidden,
                      Mistakes& mistakes, const BuildInputs& inputs) {
  const auto text = read_file(context / "Dockerfile", 1 << 20);
  if (!text) {
    mistakes.add((context / "Dockerfile").string(), 0, text.error().message());
    return {.workdir = inputs.workdir.empty() ? workdir : inputs.workdir};
  }
  return DockerfileReader(context, workdir, hidden, inputs, mistakes).run(*text);
}

}  // namespace tandem::envs
