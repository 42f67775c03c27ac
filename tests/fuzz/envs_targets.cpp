// Calls that a model makes, frames of clients and sandboxes, what programs in them say.
#include <algorithm>

#include "base/text.h"
#include "envs/container/engine_messages.h"
#include "envs/container/image_plan.h"
#include "envs/mcp/foreign_tools.h"
#include "envs/mcp/schema_check.h"
#include "envs/mcp_server/mcp_session.h"
#include "envs/network/allow_list.h"
#include "envs/network/proxy_request.h"
#include "envs/packages/url.h"
#include "envs/sandbox/exec.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/file_tree.h"
#include "envs/sandbox/folder_list.h"
#include "envs/sandbox/ignore_rules.h"
#include "envs/sandbox/owner.h"
#include "envs/search/chunks.h"
#include "envs/search/index_file.h"
#include "envs/search/piece_vectors.h"
#include "envs/search/shared_form.h"
#include "envs/search/words.h"
#include "envs/tools/arguments.h"
#include "envs/tools/glob.h"
#include "envs/tools/linters.h"
#include "envs/tools/patch.h"
#include "envs/tools/project_linters.h"
#include "envs/tools/sketch.h"
#include "envs/tools/tool.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

void engine_answers(std::string_view bytes) {
  (void)envs::read_engine_version(bytes);
  (void)envs::read_engine_image(bytes);
  (void)envs::read_engine_containers(bytes);
  (void)envs::read_created_container(bytes);
  (void)envs::read_engine_state(bytes);
  (void)envs::read_engine_progress_error(bytes);
  if (envs::read_engine_error(bytes).empty()) __builtin_trap();
}
std::vector<std::string> engine_answers_seeds() {
  return {R"({"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":"Podman Engine"}]})",
          R"({"Id":"sha256:ab","Config":{"WorkingDir":"/app","Env":["PATH=/bin","A=b"]}})",
          R"([{"Id":"1f","Labels":{"tandem.owner":"a.1.2.3"}}])",
          R"({"Id":"1f","State":{"Running":true,"Pid":17,"ExitCode":0}})",
          "{\"stream\":\"x\"}\n{\"error\":\"y\"}\n",
          R"({"message":"no such image"})"};
}

void image_plan(std::string_view bytes) {
  if (const auto plan = envs::decode_image_plan(bytes); plan && envs::decode_image_plan(envs::encode(*plan)) != *plan)
    __builtin_trap();
  (void)envs::owner_is_gone(bytes);
}
std::vector<std::string> image_plan_seeds() {
  return {envs::encode({.folder = "/app", .links = {{"/tests", "/tmp/tests"}}}), envs::this_owner()};
}

void linters(std::string_view bytes) {
  for (const auto& language : envs::lint_languages()) {
    for (const auto& linter : language.linters) (void)linter.read(bytes);
  }
  (void)envs::read_any_linter(bytes);
  if (const auto of_project = envs::parse_project_linters(bytes)) {
    for (const auto& linter : *of_project) (void)linter.takes("src/a.py");
  }
}
std::vector<std::string> linters_seeds() {
  return {R"({"mypy": {"files": ["*.py", "src/**/*.{c,h}"], "command": ["mypy", "--no-error-summary"]}})",
          "./a.py:1:8: F401 [*] `os` imported but unused\nFound 1 error.\n",
          "a.cpp:4:15: error: no member named 'sise' in 'Part' [-Wall]\n/usr/include/x.h:1:1: fatal error: x\n",
          "a.yaml:3:1: [error] duplication of key \"a\" in mapping (key-duplicates)\n",
          "/tmp/a.js:2\nlet x = ;\n        ^\n\nSyntaxError: Unexpected token ';'\n",
          "docs/a.md:7: teh\n"};
}

void patch(std::string_view bytes) {
  const auto parsed = envs::parse_patch(bytes);
  if (!parsed) return;
  for (const auto& file : *parsed) {
    if (file.kind == envs::FilePatch::Kind::kUpdate) (void)envs::apply_hunks(file, "one\ntwo\n  three\nfour\ntwo\n");
  }
}
std::vector<std::string> patch_seeds() {
  return {
      "*** Begin Patch\n*** Update File: a.txt\n*** Move to: b.txt\n@@ one\n two\n-  three\n+  3\n four\n*** End of "
      "File\n"
      "*** Add File: c/d.txt\n+new\n*** Delete File: e.txt\n*** End Patch\n"};
}

// A file, a line of equals signs, a sketch of it.
void sketch(std::string_view bytes) {
  constexpr std::string_view kBetween = "\n===\n";
  const size_t end = std::min(bytes.find(kBetween), bytes.size());
  const auto rest = bytes.substr(std::min(bytes.size(), end + kBetween.size()));
  const auto text = envs::apply_sketch(bytes.substr(0, end), rest);
  // What has gaps is made of lines of the two, and nothing else.
  if (text && text->content.size() > bytes.size() + 1) __builtin_trap();
}
std::vector<std::string> sketch_seeds() {
  return {"one\ntwo\nthree\nfour\n\n===\n# ... existing code ...\ntwo\n2.5\nthree\n# ... existing code ...\n",
          "a\n\n===\nzero\na\n// ... the rest ...", "x\n===\nwhole"};
}

void glob(std::string_view bytes) {
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  const auto pattern = envs::Glob::parse(bytes.substr(0, end));
  if (!pattern) return;
  for (const std::string_view path : {std::string_view("src/a/b.test.cpp"), std::string_view(""), bytes.substr(end)})
    (void)pattern->matches(path);
}
std::vector<std::string> glob_seeds() { return {"**/{a,b}/*.[ch]pp\nx/a/y.cpp", "src/**", "[!a-z]?*{,.x}"}; }

void tool_arguments(std::string_view bytes) {
  static const Json kSchemas = [] {
    std::vector<std::string> names;
    for (const auto& tool : envs::every_tool()) names.emplace_back(tool.name);
    return envs::tool_schemas(names);
  }();
  const auto arguments = parse_json(bytes);
  if (!arguments) return;
  for (const auto& schema : kSchemas) {
    const Json& function = schema.at("function");
    (void)envs::check_arguments(function.at("name").get<std::string>(), function.at("parameters"), *arguments);
  }
}
std::vector<std::string> tool_arguments_seeds() {
  return {
      R"({"target_file":"a","offset":1,"limit":-1,"command":"ls","is_background":false,"todos":[{"id":"1","content":"x",)"
      R"("status":"pending"}],"pattern":"x","replace_all":true})",
      "[]", "{\"pattern\":[1,2.5e300,null]}"};
}

void mcp(std::string_view bytes) {
  envs::McpSession session("1");
  uint64_t exchange = 0;
  for (const auto line : split(bytes, '\n')) {
    std::vector<envs::McpAction> actions = session.step(exchange++, line);
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto* start = std::get_if<envs::McpCallStart>(&actions[i]);
      if (!start) continue;
      auto more = session.finished(start->call, envs::ToolOutcome::refused("no"));
      actions.insert(actions.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    }
  }
}
std::vector<std::string> mcp_seeds() {
  return {
      R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},)"
      R"("clientInfo":{"name":"x","version":"1"}}})"
      "\n"
      R"({"jsonrpc":"2.0","method":"notifications/initialized"})"
      "\n"
      R"({"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"grep","arguments":{"pattern":"x"}}})"
      "\n"
      R"([{"jsonrpc":"2.0","id":3,"method":"tools/list"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":)"
      R"({"requestId":"a"}}])"};
}

void snapshot(std::string_view bytes) {
  static Folder folder;
  const auto inside = folder.path() / "root";
  fs::create_directory(inside);
  (void)envs::unpack_tree(inside, bytes);
  size_t beside = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) beside += entry.path().filename() != "root";
  if (beside > 0) __builtin_trap();
  std::error_code error;
  for (const auto& entry :
       fs::recursive_directory_iterator(inside, fs::directory_options::skip_permission_denied, error)) {
    if (entry.is_directory(error) && !entry.is_symlink(error)) fs::permissions(entry, fs::perms::owner_all, error);
  }
  folder.clear();
}
std::vector<std::string> snapshot_seeds() {
  static Folder folder;
  folder.put("a/b.txt", "text");
  folder.put("c", "");
  fs::create_symlink("a/b.txt", folder.path() / "link");
  const auto packed = envs::pack_tree(folder.path());
  folder.clear();
  return {packed.value_or("")};
}

void sandbox_fields(std::string_view bytes) {
  {
    envs::FieldReader fields(bytes);
    if (fields.number()) (void)fields.files();
  }
  {
    envs::FieldReader fields(bytes);
    if (fields.text()) (void)fields.session();
  }
  envs::FieldReader fields(bytes);
  if (const auto request = envs::decode_exec(fields)) (void)envs::encode(*request);
  (void)envs::decode_exec_answer(bytes);
}
std::vector<std::string> sandbox_fields_seeds() {
  std::string files, session;
  envs::put_number(files, 7);
  envs::put_files(files, {{"a", "b"}, {"c/d", std::string(100, 'x')}});
  envs::put_text(session, "x");
  envs::put_session(session, {});
  std::string looked;
  for (const uint64_t number : {uint64_t{1}, uint64_t{2}, uint64_t{1000}}) envs::put_number(looked, number);
  envs::put_text(looked, "output");
  envs::put_text(looked, "errors");
  // A time limit longer than a number of milliseconds can say.
  std::string endless;
  for (const uint64_t number : {uint64_t{1}, uint64_t{0}, ~uint64_t{0}, uint64_t{1}}) envs::put_number(endless, number);
  return {files, session, envs::encode(envs::ExecRequest{.argv = {"ls", "-l"}}), looked, endless};
}

const envs::IndexModel kIndexModel{{1, 2}, 4};

// Two files of an index, one of them without pieces.
envs::CodeIndex small_index() {
  envs::CodeIndex index(kIndexModel.width);
  envs::SourceChanges changes;
  changes.changed = {{{"a.py", {1, 2}, 3}, true, "def f():\n    return 1\n"},
                     {{"b.bin", {4, 5}, 6, envs::LeftOut::kBinary}, false, ""}};
  index.apply(std::move(changes));
  const auto embed = [](std::span<const std::string> texts) -> Result<std::vector<float>> {
    return std::vector<float>(texts.size() * 4, 0.5f);
  };
  if (!index.embed({.embed = embed})) abort();
  return index;
}

void search_index(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto index = envs::read_index(file.path(), kIndexModel);
  if (!index) return;
  const float query[] = {1, 0, 0, 1};
  (void)index->search(query, envs::query_words("return f"), {}, 10);
  (void)index->tree();
}
std::vector<std::string> search_index_seeds() {
  static Folder folder;
  const auto path = folder.path() / "index";
  const auto index = small_index();
  {
    envs::CodeIndex none(kIndexModel.width);
    auto file = envs::IndexFile::open(path, kIndexModel, none);
    if (!file) abort();
    for (const auto& source : index.known()) {
      if (!file->save(index, source.path)) abort();
    }
    if (!file->save_stamp(index, "a.py") || !file->save(index, "gone")) abort();
  }
  const auto bytes = read_file(path).value_or("");
  folder.clear();
  return {bytes};
}

void shared_index(std::string_view bytes) { (void)envs::SharedForm::decode(bytes, kIndexModel); }
std::vector<std::string> shared_index_seeds() {
  return {envs::SharedForm::of(small_index(), kIndexModel, envs::ShareKey::draw()).encode()};
}

void piece_vectors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto vectors = envs::PieceVectors::read(file.path(), kIndexModel);
  if (vectors) (void)vectors->find({1, 2});
}
std::vector<std::string> piece_vectors_seeds() {
  static Folder folder;
  const auto path = folder.path() / "vectors";
  {
    auto vectors = envs::PieceVectors::open(path, kIndexModel);
    const float vector[] = {1, 0, 0, 1};
    if (!vectors || !vectors->add({1, 2}, vector) || !vectors->add({3, 4}, vector)) abort();
  }
  const auto bytes = read_file(path).value_or("");
  folder.clear();
  return {bytes};
}

void source_messages(std::string_view bytes) {
  if (auto changes = envs::decode_source_changes(bytes)) {
    envs::CodeIndex index = small_index();
    index.apply(std::move(*changes));
    (void)index.search({}, envs::query_words("return f"), {}, 10);
  }
  (void)envs::decode_known_sources(bytes);
  (void)envs::decode_source_lines(bytes);
}

void folder_difference(std::string_view bytes) {
  if (const auto difference = envs::decode_folder_difference(bytes)) {
    const auto again = envs::decode_folder_difference(envs::encode(*difference));
    if (!again || again->gone != difference->gone || again->other.size() != difference->other.size() ||
        again->next != difference->next || again->rest != difference->rest)
      __builtin_trap();
  }
  envs::for_each_listed(bytes, [](std::string_view path, const envs::FileStamp&) {
    if (path.empty() || path.find('\0') != std::string_view::npos) __builtin_trap();
  });
}
std::vector<std::string> folder_difference_seeds() {
  std::string list;
  envs::put_listed(list, "src/a.py", {.mode = 0100644, .size = 5, .modified = 1, .changed = 2, .number = 3});
  const envs::FolderDifference difference{.other = {{.mode = 0100644, .path = "a.txt", .content = "one"}},
                                          .gone = {"src/b.py"},
                                          .next = "src/c.py",
                                          .rest = 2};
  return {envs::encode(difference), list + list};
}
std::vector<std::string> source_messages_seeds() {
  envs::SourceChanges changes;
  changes.changed = {{{"a.py", {7, 8}, 3}, true, "def g():\n    return 2\n"}, {{"c.py", {1, 1}, 0}, false, ""}};
  changes.removed = {"b.bin"};
  changes.secrets = {".env"};
  const envs::SourceLines lines[] = {{"a.py", 1, 2}};
  return {envs::encode(changes), envs::encode(small_index().known()), envs::encode(lines)};
}

// Texts of files: rules of what is left out, and code that is cut into pieces.
void source_text(std::string_view bytes) {
  envs::IgnoreRules rules;
  rules.add("a", bytes);
  (void)rules.ignores("a/b/c.py", false);
  (void)rules.ignores("a/build", true);
  (void)envs::left_out_by_content(bytes);
  for (const char* name : {"a.py", "a.cpp", "a.md"}) {
    for (const auto& chunk : envs::cut_into_chunks(name, bytes)) (void)envs::count_words(chunk.text);
  }
}
std::vector<std::string> source_text_seeds() {
  return {"*.o\nbuild/\n!a/**/[b-d].py\n\\#x\n",
          "class A:\n    # words\n    def f(self):\n        return {1: 2}\n\nx = A()\n",
          "#ifdef A\nint f() {\n  return 1;\n}\n#endif\n", "# T\n\nwords\n\n## U\nwords\n"};
}

// What a server of tools says: a line. Its tools are checked by schemas that it wrote.
void mcp_server(std::string_view bytes) {
  for (const auto& message : envs::decode_rpc_frame(bytes).messages) {
    if (message.kind != envs::RpcMessage::Kind::kResponse) continue;
    (void)envs::read_foreign_outcome(message.result);
    std::vector<envs::ForeignTool> tools;
    std::vector<std::string> left_out;
    if (!envs::read_foreign_tools("s", message.result, tools, left_out)) continue;
    for (const auto& tool : tools) {
      (void)envs::check_by_schema(tool.parameters, tool.parameters);
      (void)envs::check_by_schema(tool.parameters, {{"a", 1}, {"b", {{"x", "1"}}}, {"c", {1, 2, "3", nullptr}}});
    }
  }
}
std::vector<std::string> mcp_server_seeds() {
  return {
      R"({"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","description":"d","inputSchema":{"type":"object",)"
      R"("properties":{"a":{"type":["integer","null"],"minimum":0,"maximum":9},"b":{"$ref":"#/$defs/b"},"c":{"type":)"
      R"("array","maxItems":9,"items":{"anyOf":[{"type":"number"},{"enum":["3"]},true]}}},"required":["a"],)"
      R"("additionalProperties":false,"$defs":{"b":{"allOf":[{"minProperties":1},{"$ref":"#"}]}}}}],"nextCursor":"2"}})",
      R"({"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"t"},{"type":"resource","resource":)"
      R"({"text":"u"}},{"type":"image"}],"structuredContent":{},"isError":true}})",
      R"({"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no","data":[]}})",
      R"({"jsonrpc":"2.0","method":"notifications/message","params":{}})"};
}

// The head of a request that a program of a sandbox sends to its proxy. What goes on is understood in one way: it reads
// as the same request again.
void proxy_request(std::string_view bytes) {
  if (const auto wanted = envs::parse_package_request(bytes)) (void)envs::percent_decoded(wanted->path);
  const auto request = envs::parse_proxy_request(bytes);
  if (!request) return;
  const auto list = envs::AllowList::parse(std::vector<std::string>{"*.example", "192.0.2.1:81"});
  (void)list->why_refused(request->host, request->port);
  if (request->tunnel) return;
  const size_t method_end = request->head.find(' ');
  const auto path_end = request->head.find(' ', method_end + 1);
  const auto host_at = request->head.find("\r\nHost: ") + 8;
  const auto authority = request->head.substr(host_at, request->head.find("\r\n", host_at) - host_at);
  const auto again = envs::parse_proxy_request(request->head.substr(0, method_end) + " http://" + authority +
                                               request->head.substr(method_end + 1, path_end - method_end - 1) +
                                               request->head.substr(path_end));
  // What the proxy adds may be one field or byte too many for another proxy like it.
  const auto fields = static_cast<size_t>(std::count(request->head.begin(), request->head.end(), '\n')) - 2;
  if (fields > envs::kMostProxyFields || request->head.size() + authority.size() + 8 > envs::kLargestProxyHead) return;
  if (!again || again->host != request->host || again->port != request->port || again->head != request->head ||
      again->body_bytes != request->body_bytes)
    abort();
}
std::vector<std::string> proxy_request_seeds() {
  return {"GET http://a.example:81/x?y HTTP/1.1\r\nHost: b.example\r\nConnection: close, X\r\nX: 1\r\n\r\n",
          "POST http://[2001:db8::1]/ HTTP/1.0\r\nContent-Length: 3\r\nAccept: */*\r\n\r\n",
          "PUT http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
          "CONNECT 192.0.2.1:443 HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\n\r\n"};
}

constexpr Target kEnvsTargets[] = {{"engine_answers", engine_answers, engine_answers_seeds},
                                   {"image_plan", image_plan, image_plan_seeds},
                                   {"linters", linters, linters_seeds},
                                   {"patch", patch, patch_seeds},
                                   {"sketch", sketch, sketch_seeds},
                                   {"glob", glob, glob_seeds},
                                   {"tool_arguments", tool_arguments, tool_arguments_seeds},
                                   {"mcp", mcp, mcp_seeds},
                                   {"mcp_server", mcp_server, mcp_server_seeds},
                                   {"proxy_request", proxy_request, proxy_request_seeds},
                                   {"snapshot", snapshot, snapshot_seeds},
                                   {"sandbox_fields", sandbox_fields, sandbox_fields_seeds},
                                   {"search_index", search_index, search_index_seeds},
                                   {"shared_index", shared_index, shared_index_seeds},
                                   {"piece_vectors", piece_vectors, piece_vectors_seeds},
                                   {"source_messages", source_messages, source_messages_seeds},
                                   {"folder_difference", folder_difference, folder_difference_seeds},
                                   {"source_text", source_text, source_text_seeds}};

}  // namespace

std::span<const Target> envs_targets() { return kEnvsTargets; }

}  // namespace tandem::fuzz
