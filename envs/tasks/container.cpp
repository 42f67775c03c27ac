#include "envs/tasks/container.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

// Built-in commands alone: which programs PATH leads to is what this is about. Of a report of tests the folder in front
// is the grader's. The one in the home folder has what `ln -s` of a recipe and `pip install` put there; what is tested
// can write in it, so that it comes behind the system's.
constexpr std::string_view kSystemFirst = R"sh(
tandem_rest=$PATH: tandem_front= tandem_home= tandem_behind=
[ ! -d /tmp/tandem-report/bin ] || tandem_front=/tmp/tandem-report/bin:
while [ -n "$tandem_rest" ]; do
  tandem_each=${tandem_rest%%:*} tandem_rest=${tandem_rest#*:}
  [ -n "$tandem_each" ] || tandem_each=.
  case $tandem_each in
    /tmp/tandem-report/bin) ;;
    *..*|/usr/src/*) tandem_behind+=$tandem_each: ;;
    /tmp/home/.local/bin) tandem_home=$tandem_each: ;;
    /usr/*|/bin|/sbin) tandem_front+=$tandem_each: ;;
    *) tandem_behind+=$tandem_each: ;;
  esac
done
case :$tandem_front in *:/usr/bin:*|*:/bin:*) ;; *) tandem_front+=/usr/local/bin:/usr/bin:/bin: ;; esac
IFS=: read -ra tandem_system <<< "$tandem_front"
IFS=: read -ra tandem_others <<< "$tandem_behind"
for tandem_each in "${tandem_others[@]}"; do
  for tandem_program in "$tandem_each"/*; do
    [ -f "$tandem_program" ] && [ -x "$tandem_program" ] || continue
    for tandem_rest in "${tandem_system[@]}"; do
      [ ! -x "$tandem_rest/${tandem_program##*/}" ] ||
        { echo "[tests run $tandem_rest/${tandem_program##*/}, not $tandem_program]" >&2; break; }
    done
  done
done
export PATH=${tandem_front}${tandem_home}${tandem_behind%:}
PATH=${PATH%:}
if [ -n "${LD_LIBRARY_PATH-}" ]; then
  tandem_front=
  for tandem_each in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib; do
    [ ! -d "$tandem_each" ] || tandem_front+=$tandem_each:
  done
  export LD_LIBRARY_PATH=$tandem_front$LD_LIBRARY_PATH
fi
unset tandem_rest tandem_front tandem_home tandem_behind tandem_each tandem_system tandem_others tandem_program
)sh";

// Where there are no packages of the user as tests begin, and they install none, Python looks for none: what is tested
// could write some. No name of Python stands here: commands that name it are to report.
constexpr std::string_view kWithoutUserPackages = R"sh(
tandem_user=
for tandem_each in "$HOME"/.local/lib/py*/site-packages; do [ ! -d "$tandem_each" ] || tandem_user=1; done
for tandem_each in /tests/*.sh /tests/*.py; do
  [ ! -f "$tandem_each" ] || case $(<"$tandem_each") in *pip*|*"uv "*|*easy_install*) tandem_user=1 ;; esac
done
[ -n "$tandem_user" ] || export PYTHONNOUSERSITE=1
unset tandem_user tandem_each
)sh";

// Values that lines of `export NAME=VALUE` give a variable, in order, without quotes.
std::vector<std::string> values_of(std::string_view exports, std::string_view name) {
  std::vector<std::string> values;
  const auto mark = "export " + std::string(name) + "=";
  for (size_t at = exports.find(mark); at != std::string_view::npos; at = exports.find(mark, at + 1)) {
    auto rest = exports.substr(at + mark.size());
    const char quote = !rest.empty() && (rest[0] == '"' || rest[0] == '\'') ? rest[0] : 0;
    if (quote != 0) rest.remove_prefix(1);
    values.emplace_back(rest.substr(0, quote != 0 ? rest.find(quote) : rest.find_first_of("; \n")));
  }
  return values;
}

void refuse_files_in_front(const std::string& exports, const Build& build, const std::string& file,
                           Mistakes& mistakes) {
  std::set<std::string> folders;
  for (const auto& value : values_of(exports, "PATH")) {
    for (const auto folder : split(value, ':')) {
      if (folder.empty() || folder.find('$') != std::string_view::npos || is_of_system(folder)) continue;
      const auto path = (fs::path(build.workdir) / folder).lexically_normal();
      folders.insert((path.has_filename() ? path : path.parent_path()).string());
    }
  }
  for (const auto& [name, content] : build.files) {
    const fs::path path = fs::path(build.root()) / name;
    const auto program = path.filename().string();
    if (!folders.contains(path.parent_path().string()) || find_program(program).empty()) continue;
    mistakes.add(
        file, 0,
        fmt::format("PATH: {} would stand in front of the system's {}, which tests run, since a model can write "
                    "in that folder; give it another name",
                    path.string(), program));
  }
}

}  // namespace

void begin_in(const Build& build, const std::string& environment, std::initializer_list<std::string_view> folders,
              const std::string& dockerfile, Task& task, Mistakes& mistakes) {
  const auto root = build.root();
  const auto top = root.empty() ? "" : split(root, '/').at(1);
  const bool fits = root == "/workspace" || can_be_folder(top) || root.starts_with("/usr/src/");
  if (!fits) {
    mistakes.add(dockerfile, 0,
                 fmt::format("WORKDIR \"{}\" cannot be a workspace; choose one like /app", build.workdir));
  } else if (root != "/workspace") {
    task.links[root] = "/workspace";
  }
  for (const auto& folder : build.folders) task.links[folder] = kOutside + folder;
  for (const auto name : folders) task.links[std::string(name)] = "/tmp" + std::string(name);
  task.files = build.files;
  task.programs = build.programs;
  task.setup = {std::string(kMakeLogs)};
  task.setup.insert(task.setup.end(), build.steps.begin(), build.steps.end());
  // What says how a container is started is unknown to its build, and goes before ENV.
  if (!environment.empty()) task.setup.push_back(environment);
  const auto folder = shell_quoted(build.workdir);
  if (build.workdir != "/workspace") task.setup.push_back("mkdir -p " + folder + " && cd " + folder);
  for (const auto& package : build.packages) task.needs.push_back("package " + package);
  for (const auto& package : build.python_packages) task.needs.push_back("python " + package);
}

void add_named_folders(Task& task, std::span<const std::string_view> texts) {
  constexpr size_t kMostLinks = 32;
  for (const auto text : texts) {
    for (const auto& folder : named_folders(text)) {
      if (task.links.size() < kMostLinks) task.links.try_emplace(folder, kOutside + folder);
    }
  }
}

std::string exports_of(const Build& build) {
  std::string text;
  for (const auto& each : build.exports) text += each + "; ";
  return text;
}

std::string test_environment(const std::string& exports, const Build& build, const std::string& file,
                             Mistakes& mistakes) {
  for (const char* name : {"BASH_ENV", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "PYTHONHOME"}) {
    for (const auto& value : values_of(exports, name)) {
      if (value.empty() || is_of_system(value)) continue;
      mistakes.add(file, 0,
                   fmt::format("{}=\"{}\" has every program load a file that a model can write, those that grade among "
                               "them; set it where it is needed",
                               name, value));
    }
  }
  for (const char* name : {"NODE_OPTIONS", "PERL5OPT", "RUBYOPT"}) {
    for (const auto& value : values_of(exports, name)) {
      if (value.find("-r") == std::string::npos && value.find("-M") == std::string::npos &&
          value.find("-I") == std::string::npos && value.find("import") == std::string::npos &&
          value.find("loader") == std::string::npos)
        continue;
      mistakes.add(file, 0,
                   fmt::format("{}=\"{}\" has the interpreter load a module, which a model can write, before any test; "
                               "set it where it is needed",
                               name, value));
    }
  }
  refuse_files_in_front(exports, build, file, mistakes);
  return exports + std::string(kSystemFirst) + std::string(kWithoutUserPackages);
}

}  // namespace tandem::envs
