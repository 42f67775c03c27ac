// `tandem envs top`: the sandboxes of environment servers, and how fast they come and go, while it happens.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/envs/envs_commands.h"
#include "cli/envs/fleet_view.h"
#include "cli/interrupt.h"

namespace tandem::cli {

using namespace std::chrono_literals;

namespace {

constexpr Duration kEvery = 1s;

struct Look {
  struct Server {
    std::string name;
    envs::ServerFigures figures;
  };
  std::vector<Server> servers;
  std::vector<SeenSandbox> sandboxes;
  std::vector<Status> troubles;
};

// What a terminal shows of some lines: as many as it is high, none wider than it is, and what else there is.
std::string page_of(const std::string& text, size_t width, size_t height) {
  const auto lines = split(trim(text), '\n');
  std::string page;
  const size_t shown = lines.size() <= height ? lines.size() : height - 1;
  for (size_t i = 0; i < shown; ++i) page.append(lines[i].substr(0, width)).append("\x1b[K\n");
  if (shown < lines.size()) page += fmt::format("... {} more\x1b[K\n", lines.size() - shown);
  return page;
}

class Top {
 public:
  Top(FleetClient& client, const TopOptions& options, Interrupted interrupted)
      : client_(client), options_(options), interrupted_(std::move(interrupted)) {}

  // Without a terminal nobody asks for the single sandboxes: their figures are looked at one by one.
  Look look(bool with_sandboxes) {
    Look seen;
    for (auto& line : client_.lines()) {
      auto figures = line.ask_for<envs::ServerFigures>(envs::FiguresQuery{}, client_.patience(), interrupted_);
      if (!figures) {
        seen.troubles.push_back(figures.error());
        continue;
      }
      seen.servers.push_back({line.name(), std::move(*figures)});
      if (!with_sandboxes) continue;
      auto rows = client_.rows(line, interrupted_);
      if (!rows) {
        seen.troubles.push_back(rows.error());
        continue;
      }
      for (auto& row : *rows) seen.sandboxes.push_back({line.name(), std::move(row)});
    }
    return seen;
  }

  void print_json(const Look& seen) const {
    for (const auto& server : seen.servers) {
      Json line = {{"server", server.name}, {"time", SystemClock().unix_seconds()}};
      line.update(to_json(server.figures));
      fmt::print("{}\n", dump_json_line(line));
    }
  }

  void print_lines(const Look& seen) const {
    for (const auto& server : seen.servers)
      fmt::print("{}{}\n", seen.servers.size() > 1 ? server.name + "  " : "", line_of(server.figures));
  }

  void draw(const Look& seen) const {
    std::string text;
    for (const auto& server : seen.servers) text += lines_of(server.name, server.figures);
    for (const auto& trouble : seen.troubles) text += trouble.message() + "\n";
    // Those that do something come first; a fleet may be longer than a screen.
    auto sandboxes = seen.sandboxes;
    std::stable_partition(sandboxes.begin(), sandboxes.end(),
                          [](const SeenSandbox& each) { return each.row.state != envs::SandboxState::kWarm; });
    if (!sandboxes.empty()) text.append(" \n").append(table_of(sandboxes));
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 && size.ws_col > 0;
    fmt::print("\x1b[H{}\x1b[J", page_of(text, known ? size.ws_col : 120, known ? size.ws_row - 1u : 40u));
  }

 private:
  FleetClient& client_;
  const TopOptions& options_;
  const Interrupted interrupted_;
};

}  // namespace

Result<int> show_top(const FleetTarget& target, const TopOptions& options) {
  auto client = TRY(FleetClient::open(target));
  const auto interrupt = TRY(Interrupt::listen());
  const Interrupted interrupted = [&] { return interrupt->requested(); };
  const bool draws = !options.json && !options.once && ::isatty(STDOUT_FILENO) == 1;
  Top top(client, options, interrupted);
  const SystemClock clock;
  const Time began = clock.now();
  if (draws) fmt::print("\x1b[2J");
  for (Time next = began;;) {
    const Look seen = top.look(draws);
    if (interrupted()) return kDone;
    if (seen.servers.empty()) return fail(seen.troubles.front());
    for (size_t i = 0; !draws && i < seen.troubles.size(); ++i)
      fmt::print(stderr, "tandem envs: {}\n", seen.troubles[i].to_string());
    if (options.json)
      top.print_json(seen);
    else if (draws)
      top.draw(seen);
    else
      top.print_lines(seen);
    std::fflush(stdout);
    if (options.once) return seen.troubles.empty() ? kDone : kIncomplete;
    next = std::max(next + kEvery, clock.now());  // a server that was slow is not asked twice for it
    if (options.seconds > 0 && next - began >= from_seconds(options.seconds)) return kDone;
    while (clock.now() < next) {
      if (interrupted()) return kDone;
      ::usleep(20'000);
    }
  }
}

}  // namespace tandem::cli
