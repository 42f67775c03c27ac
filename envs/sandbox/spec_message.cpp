#include "envs/sandbox/spec_message.h"

#include "envs/sandbox/fields.h"

namespace tandem::envs {

std::string encode(const SandboxSpec& spec) {
  std::string bytes;
  put_number(bytes, static_cast<uint64_t>(spec.processes));
  put_number(bytes, spec.memory_bytes);
  put_number(bytes, spec.disk_bytes);
  put_number(bytes, spec.file_bytes);
  put_text(bytes, spec.workspace ? spec.workspace->string() : "");
  put_files(bytes, spec.links);
  const auto hosts = spec.network.entries();
  put_number(bytes, hosts.size());
  for (const auto& host : hosts) put_text(bytes, host);
  // The service itself stays here; what programs find it by goes along.
  auto environment = spec.environment;
  auto home = spec.home;
  if (spec.packages) {
    for (auto& setting : spec.packages->environment()) environment.push_back(std::move(setting));
    home.merge(spec.packages->home_files());
  }
  put_number(bytes, spec.has_proxy() ? 1 : 0);
  put_files(bytes, home);
  put_number(bytes, environment.size());
  for (const auto& setting : environment) put_text(bytes, setting);
  put_number(bytes, spec.sealable ? 1 : 0);
  put_number(bytes, spec.memory_is_bounded ? 1 : 0);
  put_text(bytes, spec.below ? spec.below->folder.string() : "");  // what is hidden goes its own way
  return bytes;
}

Result<SandboxSpec> decode_spec(std::string_view bytes) {
  FieldReader fields(bytes);
  SandboxSpec spec;
  spec.processes = static_cast<int>(TRY(fields.number()));
  spec.memory_bytes = TRY(fields.number());
  spec.disk_bytes = TRY(fields.number());
  spec.file_bytes = TRY(fields.number());
  const auto workspace = TRY(fields.text());
  if (!workspace.empty()) spec.workspace = workspace;
  spec.links = TRY(fields.files());
  std::vector<std::string> hosts;
  for (uint64_t left = TRY(fields.number()); left > 0; --left) hosts.push_back(TRY(fields.text()));
  spec.network = TRY(AllowList::parse(hosts));
  spec.proxy = TRY(fields.number()) == 1;
  spec.home = TRY(fields.files());
  for (uint64_t left = TRY(fields.number()); left > 0; --left) spec.environment.push_back(TRY(fields.text()));
  spec.sealable = TRY(fields.number()) == 1;
  spec.memory_is_bounded = TRY(fields.number()) == 1;
  if (const auto below = TRY(fields.text()); !below.empty()) spec.below = FolderBelow{.folder = below, .hidden = {}};
  return spec;
}

}  // namespace tandem::envs
