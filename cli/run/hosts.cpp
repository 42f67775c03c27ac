// `tandem hosts`: the machines that are lent to a run.
#include <fmt/format.h>

#include "base/json_file.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/run/run_listener_address.h"
#include "dashboard/run_files.h"
#include "hosts/run_listener.h"
#include "run/resume.h"
#include "wire/address.h"

namespace tandem::cli {

namespace {

struct HostsOptions {
  std::string run, add, drain;
  fs::path key;
  bool json = false;
};

constexpr double kAnswerSeconds = 10;

Result<Json> status_of(const fs::path& run_dir) {
  TRY(dashboard::check_run_directory(run_dir.string()));
  const Json status = TRY(read_json_file(run_dir / "status.json", dashboard::kStatusFormat, 1 << 20));
  if (!status.contains("hosts")) {
    return fail(Status::unavailable(fmt::format("{} has no hosts", run_dir.string()))
                    .hint("run.hosts names the machines of a run"));
  }
  return status;
}

void print_host(const Json& host) {
  std::string roles;
  for (const Json& role : host.value("roles", Json::array()))
    roles += (roles.empty() ? "" : ", ") + role.get<std::string>();
  fmt::print("{:<24} {:<9} {:>3} cores {:>10}  {}\n", host.value("host", ""), host.value("state", ""),
             host.value("cores", 0), format_bytes(host.value("memory_bytes", uint64_t{0})),
             roles.empty() ? "nothing" : roles);
}

Result<int> run_hosts(const HostsOptions& options) {
  if (!options.add.empty() || !options.drain.empty()) {
    fs::path key = options.key;
    if (key.empty()) key = TRY(run::read_resolved(options.run)).run.key;
    const auto secret = TRY(wire::Secret::read(key));
    const std::string listener = TRY(run_listener_address(options.run));
    if (!options.add.empty()) TRY(hosts::ask_run(listener, secret, hosts::Join{options.add}, kAnswerSeconds));
    if (!options.drain.empty()) TRY(hosts::ask_run(listener, secret, hosts::Leave{options.drain}, kAnswerSeconds));
    return kDone;
  }
  const Json status = TRY(status_of(options.run));
  for (const Json& host : status["hosts"]) {
    if (options.json)
      fmt::print("{}\n", dump_json_line(host));
    else
      print_host(host);
  }
  return kDone;
}

}  // namespace

Result<std::string> run_listener_address(const std::string& run) {
  if (wire::Address::is_network(run)) return run;
  const Json status = TRY(status_of(run));
  const auto listener = status.value("hosts_join_at", "");
  const auto state = status.value("state", "");
  const bool has_ended = status.contains("end") ? !status["end"].is_null() : state == "done" || state == "failed";
  if (!listener.empty() && !has_ended) return listener;
  return fail(Status::unavailable(fmt::format("{} is not on", run)).hint("`tandem run` starts it"));
}

Action add_hosts(CLI::App& command) {
  auto options = std::make_shared<HostsOptions>();
  command.add_option("run", options->run, "Run directory; with --add or --drain also the address that the run printed")
      ->required();
  auto* add = command.add_option("--add", options->add, "A host that the run may use, too: tcp://ADDRESS:PORT");
  command.add_option("--drain", options->drain, "A host that the run gives back: its roles move first")->excludes(add);
  command.add_option("--key", options->key, "File with the key of the run's hosts (default: its run.key)");
  command.add_flag("--json", options->json, "A line of JSON for each host");
  command.footer(
      "Examples:\n  tandem hosts runs/tiny-1\n  tandem hosts runs/tiny-1 --add tcp://10.0.0.7:7070\n"
      "  tandem hosts runs/tiny-1 --drain 10.0.0.7:7070");
  return [options]() -> Result<int> { return run_hosts(*options); };
}

}  // namespace tandem::cli
