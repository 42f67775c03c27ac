#include "envs/sandbox/serve_request.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/sandbox/exec.h"
#include "envs/sandbox/file_tree.h"
#include "envs/sandbox/folder_list.h"
#include "envs/sandbox/log_guard.h"
#include "envs/sandbox/root_contents.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tools/functions.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"
#include "envs/tools/tool.h"

namespace tandem::envs {
namespace {

const char* const kRoot = "/workspace";
const char* const kTemporary = "/tmp";

// Ends every process that this one's command left, whatever sessions they moved to: as a subreaper it inherits them.
void end_descendants() {
  const std::string list = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  for (int round = 0; round < 10'000; ++round) {
    FileDescriptor file(open(list.c_str(), O_RDONLY | O_CLOEXEC));
    char text[4096];
    const ssize_t size = file ? read(file.get(), text, sizeof text) : 0;
    if (size <= 0) return;
    std::istringstream words(std::string(text, static_cast<size_t>(size)));
    for (pid_t child; words >> child;) kill(child, SIGKILL);
    bool any = false;
    while (waitpid(-1, nullptr, WNOHANG) > 0) any = true;
    if (!any) usleep(50);  // a killed process ends a moment later, on a busy machine much later
  }
}

// What this process and those that it has waited for have used of the processors: each request has a process of its
// own.
double core_seconds() {
  double seconds = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      seconds += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  }
  return seconds;
}

// Such a reply begins with what became of the session: that stays in the first process, the rest goes on.
std::string reply_with(const Session& before, const Session& after, const std::string& rest) {
  std::string reply;
  put_number(reply, after != before ? 1 : 0);
  if (after != before) put_session(reply, after);
  put_text(reply, rest);
  return reply;
}

std::string serve_call(FieldReader& fields, Session session, const RequestContext& request) {
  const Session before = session;
  const auto serve = [&]() -> Result<ToolOutcome> {
    const auto name = TRY(fields.text());
    const auto arguments = TRY(fields.text());
    ToolContext context;
    context.root = kRoot;
    context.shown_root = kRoot;
    for (const auto& [path, target] : request.links) {
      if (target == kRoot) context.other_roots.push_back(path);
    }
    context.environment = request.environment;
    context.has_network = request.has_network;
    context.session = &session;
    context.output_limit = TRY(fields.number());
    context.time_limit_s = TRY(fields.seconds());
    const auto tools = TRY(fields.text());
    for (const auto tool : split(tools, ',')) {
      if (!tool.empty()) context.tools.emplace_back(tool);
    }
    const auto json = TRY(parse_json(arguments));
    auto outcome = run_tool(context, name, json);
    const bool background =
        json.is_object() && json.contains("is_background") && json.at("is_background") == Json(true);
    if (!background) end_descendants();
    outcome.core_seconds = core_seconds();
    return outcome;
  };
  const auto outcome = serve();
  return reply_with(before, session,
                    dump_json(to_json(outcome ? *outcome : ToolOutcome::refused(outcome.error().message()))));
}

std::string serve_snapshot(const Session& session) {
  std::string reply;
  const auto workspace = pack_tree(kRoot);
  const auto temporary = workspace ? pack_tree(kTemporary, kLargestTree - workspace->size()) : workspace;
  if (!temporary) {
    put_text(reply, temporary.error().message());
    return reply;
  }
  put_text(reply, "");
  put_text(reply, *workspace);
  put_text(reply, *temporary);
  put_session(reply, session);
  return reply;
}

std::string serve_restore(FieldReader& fields, const Session& before) {
  Session session = before;
  const auto restore = [&]() -> Status {
    for (const char* root : {kRoot, kTemporary}) {
      if (const auto tree = TRY(fields.text()); !tree.empty()) TRY(unpack_tree(root, tree));
    }
    session = TRY(fields.session());
    return {};
  };
  const Status status = restore();
  return reply_with(before, session, status ? kWorked : status.message());
}

// Collects the workspace, and folders of the task beside it.
Collected collect_all(const Links& links, Collected all) {
  std::set<std::string> others;
  for (const auto& [path, target] : links) others.insert(path);
  for (const auto& [path, target] : links) {
    if (!target.starts_with(std::string(kOutside) + "/")) continue;
    auto more = collect_files(path, others);
    all.complete = all.complete && more.complete;
    for (auto& [name, content] : more.files) all.files[path + "/" + name] = std::move(content);
    for (const auto& name : more.programs) all.programs.insert(path + "/" + name);
    for (const auto& [name, to] : more.details.links) all.details.links[path + "/" + name] = to;
    for (const auto& name : more.details.folders) all.details.folders.insert(path + "/" + name);
    for (const auto& [name, mode] : more.details.modes) all.details.modes[path + "/" + name] = mode;
  }
  return all;
}

std::string read_whole(int descriptor) {
  std::string text;
  char buffer[65536];
  for (ssize_t count = 0; (count = read(descriptor, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  return text;
}

std::string serve_begin(FieldReader& fields) {
  const auto begin = [&]() -> Status {
    return unpack_tree(kRoot, TRY(read_file(TRY(fields.text()), kLargestTree * 2)));
  };
  const Status status = begin();
  return status ? kWorked : status.message();
}

template <typename Answer>
std::string serve_sources(std::string_view question, const Answer& answer) {
  std::string reply;
  const Result<std::string> text = answer(question);
  put_text(reply, text ? "" : text.error().message());
  if (text) put_text(reply, *text);
  return reply;
}

Result<std::string> source_changes(std::string_view question) {
  return encode(TRY(changes_of_sources(kRoot, TRY(decode_known_sources(question)))));
}

Result<std::string> source_lines(std::string_view question) {
  std::string texts;
  for (const auto& text : read_lines(kRoot, TRY(decode_source_lines(question)))) put_text(texts, text);
  return texts;
}

// The list: how long the first part is, and both.
std::string serve_folder_changes(FieldReader& request, int descriptor) {
  const auto text = read_whole(descriptor);
  FieldReader fields(text);
  return serve_sources("", [&](std::string_view) -> Result<std::string> {
    FolderPage page;
    page.from = TRY(request.text());
    for (uint64_t* const number : {&page.entries, &page.bytes, &page.left}) *number = TRY(request.number());
    const auto begin = TRY(fields.number());
    const auto lists = fields.rest();
    if (begin > lists.size()) return fail(Status::corrupt("the list of a folder's files is cut"));
    return encode(TRY(difference_from(kRoot, lists.substr(0, begin), lists.substr(begin), page)));
  });
}

std::string serve_start(FieldReader& fields, int socket, const std::vector<std::string>& environment) {
  const auto start = [&]() -> Status {
    const auto name = TRY(fields.text());
    ProcessSpec spec;
    const auto bash = find_program("bash");
    auto command = TRY(fields.text());
    spec.argv = {bash.empty() ? "/bin/sh" : bash, "-c", std::move(command)};
    spec.directory = kRoot;
    spec.environment = environment;
    const auto log = server_log(name);
    const FileDescriptor errors(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!errors) return Status::from_errno(log, errno);
    const pid_t server = TRY(start_process(spec, socket, errors.get()));
    const Status guarded = guard_log(log, server);
    if (!guarded) kill(-server, SIGKILL);
    return guarded;
  };
  const Status status = start();
  return status ? kWorked : status.message();
}

}  // namespace

std::string serve_request(RequestKind kind, FieldReader& fields, const Session& session, int descriptor,
                          const RequestContext& context) {
  // Whatever became of it: programs keep their files there.
  (void)make_directories(kHome).ok();
  const auto& environment = context.environment;
  std::string reply;
  switch (kind) {
    case RequestKind::kCall:
      return serve_call(fields, session, context);
    case RequestKind::kPut: {
      const auto files = fields.files();
      const Status status = files ? put_files(kRoot, *files) : files.error();
      return status ? kWorked : status.message();
    }
    case RequestKind::kBegin:
      return serve_begin(fields);
    case RequestKind::kSnapshot:
      return serve_snapshot(session);
    case RequestKind::kRestore:
      return serve_restore(fields, session);
    case RequestKind::kCollect:
    case RequestKind::kCollectChanges: {
      const bool all = kind == RequestKind::kCollect;
      const auto collected =
          collect_all(context.links, all ? collect_files(kRoot) : collect_changes(kRoot, read_whole(descriptor)));
      put_number(reply, collected.complete ? 1 : 0);
      put_files(reply, collected.files);
      put_number(reply, collected.programs.size());
      for (const auto& path : collected.programs) put_text(reply, path);
      put_number(reply, collected.removed.size());
      for (const auto& path : collected.removed) put_text(reply, path);
      put_number(reply, collected.details.links.size());
      for (const auto& [path, to] : collected.details.links) {
        put_text(reply, path);
        put_text(reply, to);
      }
      put_number(reply, collected.details.folders.size());
      for (const auto& path : collected.details.folders) put_text(reply, path);
      put_number(reply, collected.details.modes.size());
      for (const auto& [path, mode] : collected.details.modes) {
        put_text(reply, path);
        put_number(reply, mode);
      }
      return reply;
    }
    case RequestKind::kFolderChanges:
      return serve_folder_changes(fields, descriptor);
    case RequestKind::kSourceChanges:
      return serve_sources(fields.rest(), source_changes);
    case RequestKind::kSourceLines:
      return serve_sources(fields.rest(), source_lines);
    case RequestKind::kFingerprint:
      put_number(reply, fingerprint(kRoot));
      return reply;
    case RequestKind::kStartServer:
      return serve_start(fields, descriptor, environment);
    case RequestKind::kExec: {
      auto looked = serve_exec(fields, kRoot, session, environment);
      end_descendants();
      return looked;
    }
    case RequestKind::kCancel:
    case RequestKind::kFreeze:
    case RequestKind::kThaw:
    case RequestKind::kSeal:
      break;  // the first process itself sees to them
  }
  return "";
}

}  // namespace tandem::envs
