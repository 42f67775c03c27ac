#include "run/lines.h"

#include "base/json.h"
#include "run/config.h"
#include "wire/address.h"

namespace tandem::run {
namespace {

constexpr int kWiringFormat = 1;

}  // namespace

std::string wiring_text(const Wiring& wiring) {
  return dump_json(Json{{"format", kWiringFormat},
                        {"host", wiring.host},
                        {"ip", wiring.ip},
                        {"coordinator", wiring.coordinator},
                        {"trainer", wiring.trainer}}) +
         "\n";
}

Result<Lines> Lines::of(const RunLayout& layout) {
  Lines lines(layout);
  lines.wiring_.host = kLocalHost;
  const fs::path path = layout.socket_folder() / kWiringFile;
  std::error_code error;
  if (!fs::exists(path, error)) return lines;
  const Json json = TRY(parse_json(TRY(read_file(path, 1 << 16))));
  if (const auto format = format_of(json, kWiringFormat); !format)
    return fail(Status(format.error()).at(path.string()));
  lines.wiring_ = {.host = json.value("host", ""),
                   .ip = json.value("ip", ""),
                   .coordinator = json.value("coordinator", ""),
                   .trainer = json.value("trainer", "")};
  for (const std::string& address : {lines.wiring_.coordinator, lines.wiring_.trainer}) {
    if (!wire::Address::parse(address)) return fail(Status::corrupt("has no addresses of the run").at(path.string()));
  }
  lines.secret_ = TRY(wire::Secret::read(layout.socket_folder() / kRunKeyFile));
  return lines;
}

std::string Lines::listening(const wire::Peer& peer) const {
  if (const auto address = known(peer)) return address->text();
  return wire::Address::of_any_port(wiring_.ip).text();
}

std::optional<wire::Address> Lines::known(const wire::Peer& peer) const {
  if (!is_between_machines()) return layout_.address(peer);
  if (peer == wire::Peer{wire::Role::kCoordinator, 0}) return *wire::Address::parse(wiring_.coordinator);
  if (peer == wire::Peer{wire::Role::kTrainer, 0}) return *wire::Address::parse(wiring_.trainer);
  return std::nullopt;
}

}  // namespace tandem::run
