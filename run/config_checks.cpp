// What the fields of a run's config say together: contradictions, and the harness that its model trains under.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/byte_size.h"
#include "base/iso_time.h"
#include "base/text.h"
#include "envs/episodes/opening.h"
#include "envs/foreign/environment_spec.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/workspace/kinds.h"
#include "rollout/agent/hint.h"
#include "run/config.h"
#include "run/parallel_kinds.h"
#include "run/rewards.h"
#include "run/spread.h"
#include "run/teacher.h"
#include "trainer/learn/slots.h"
#include "wire/address.h"

namespace tandem::run {

namespace {

// env.hosts: neither empty nor too long; addresses, each once.
Status check_hosts(const std::vector<std::string>& hosts) {
  constexpr size_t kMostHosts = 256;
  if (hosts.empty()) return Status::invalid("a run needs one at least; \"local\" is its own").at("env.hosts");
  if (hosts.size() > kMostHosts)
    return Status::invalid(fmt::format("there are {}; at most {} can be", hosts.size(), kMostHosts)).at("env.hosts");
  if (std::set(hosts.begin(), hosts.end()).size() != hosts.size())
    return Status::invalid("a host is named twice").at("env.hosts");
  for (const auto& host : hosts) {
    if (host == kLocalHost) continue;
    if (auto address = wire::Address::parse(host); !address)
      return std::move(address).error().at("env.hosts").hint("give local, tcp://HOST:PORT or ipc://PATH");
  }
  return {};
}

// The text of a hint: a placeholder that is another word than feedback, and feedback where no task has any.
Status check_hint_text(const RunConfig& c) {
  constexpr const char* kKey = "algorithm.teacher.hint";
  const std::string& text = c.algorithm.teacher.hint;
  bool asks = false;
  for (size_t end = text.find('}'); end != std::string::npos; end = text.find('}', end + 1)) {
    const size_t begin = text.rfind('{', end);  // the innermost: a text may have brackets of its own around it
    if (begin == std::string::npos || text.find('}', begin) != end) continue;
    const std::string word = text.substr(begin, end - begin + 1);
    asks |= word == rollout::kFeedback;
    if (word == rollout::kFeedback || nearest(word, std::array{rollout::kFeedback}).empty()) continue;
    return Status::invalid(fmt::format("{} would be read as it stands", word))
        .at(kKey)
        .hint(fmt::format("write {}, or another word in other brackets", rollout::kFeedback));
  }
  const auto external = envs::parse_environments(c.env.external);
  if (!asks || !external || !c.tasks.path.empty() || c.tasks.kinds.empty()) return {};
  const auto is_external = [&](const std::string& kind) {
    return std::ranges::any_of(*external, [&](const auto& spec) { return spec.name == kind; });
  };
  if (!std::ranges::all_of(c.tasks.kinds, is_external)) return {};
  return Status::invalid(fmt::format("environments of env.external say nothing that could stand for {}, so no episode "
                                     "would have a hint",
                                     rollout::kFeedback))
      .at(kKey)
      .hint("leave it out of the text, and each episode has the hint");
}

// run.standby_takes_over=majority: what it needs so that never two sides train.
Status check_majority(const RunConfig& c) {
  constexpr size_t kLeast = 3;
  constexpr const char* kKey = "run.standby_takes_over";
  if (c.run.standby_takes_over != "majority") return {};
  if (c.run.standby.empty())
    return Status::invalid("the run has no standby that could take it over").at(kKey).hint("name it as run.standby");
  if (c.run.hosts.size() < kLeast) {
    return Status::invalid(
               fmt::format("a majority needs {} hosts or more, and run.hosts names {}", kLeast, c.run.hosts.size()))
        .at(kKey)
        .hint("add hosts, or leave it at operator, who says `tandem run --take-over`");
  }
  if (c.run.standby_lost != "wait") {
    return Status::invalid("with run.standby_lost=go_on the run trains without its standby, which cannot know of it")
        .at(kKey)
        .hint("leave run.standby_lost at wait");
  }
  return {};
}

// run.hosts, and what goes with it.
Status check_lent(const RunConfig& c) {
  constexpr size_t kMostLent = 256;
  const auto& hosts = c.run.hosts;
  if (hosts.empty()) {
    for (const auto& [key, is_set] :
         {std::pair("run.key", !c.run.key.empty()), std::pair("run.topology", !c.run.topology.empty()),
          std::pair("run.address", !c.run.address.empty()), std::pair("run.standby", !c.run.standby.empty())}) {
      if (is_set) return Status::invalid("says something of hosts, and run.hosts names none").at(key);
    }
    return {};
  }
  if (hosts.size() > kMostLent)
    return Status::invalid(fmt::format("there are {}; at most {} can be", hosts.size(), kMostLent)).at("run.hosts");
  if (std::set(hosts.begin(), hosts.end()).size() != hosts.size())
    return Status::invalid("a host is named twice").at("run.hosts");
  for (const auto& host : hosts) {
    const auto address = wire::Address::parse(host);
    if (!address || address->host().empty()) {
      return Status::invalid(fmt::format("\"{}\" is not the address of a host", host.substr(0, 100)))
          .at("run.hosts")
          .hint("give tcp://ADDRESS:PORT, as `tandem host --listen` says it");
    }
  }
  if (!c.run.standby.empty() && std::find(hosts.begin(), hosts.end(), c.run.standby) == hosts.end()) {
    return Status::invalid(fmt::format("\"{}\" is not in run.hosts", c.run.standby.substr(0, 100)))
        .at("run.standby")
        .hint("name one of them, as run.hosts has it");
  }
  TRY(check_majority(c));
  if (c.run.key.empty()) {
    return Status::invalid("hosts are lent to who has their key")
        .at("run.key")
        .hint("name the file that `tandem host --key` made, copied to this machine");
  }
  if (c.env.hosts != std::vector<std::string>{std::string(kLocalHost)}) {
    return Status::invalid("run.hosts gives environments their machines; env.hosts beside it is not built yet")
        .at("env.hosts");
  }
  return check_topology(c);
}

// How many ranks there are and how they share a step. What is not built is refused by name, never left out.
Status check_ranks(RunConfig c) {
  int product = c.trainer.parallel.data > 0 ? c.trainer.parallel.data : c.trainer.ranks;
  for (const auto& [kind, ways] : kinds_of_parallelism(c)) {
    product *= *ways;
    if (*ways != 1) {
      return Status::invalid(fmt::format("trainer.parallel.{} is {}: not built yet", kind, *ways))
          .hint("trainer.parallel.data shares the samples of a step; trainer.ranks alone does the same");
    }
  }
  if (product != c.trainer.ranks) {
    return Status::invalid(
        fmt::format("trainer.parallel.data is {}, and trainer.ranks {}: the ways to share a step "
                    "multiply to the number of ranks",
                    c.trainer.parallel.data, c.trainer.ranks));
  }
  return trainer::check_ranks(c.trainer.ranks, c.trainer.slots);
}

// env.encoder gives codebase_search to profiles that do not name it.
Result<envs::Profile> with_search(const RunConfig& c, envs::Profile profile) {
  if (!c.env.encoder.empty() && std::ranges::find(profile.tools, envs::kSearchTool) == profile.tools.end()) {
    profile.tools.emplace_back(envs::kSearchTool);
    profile.tools = TRY(envs::choose_tools(profile.tools, envs::WithSearch::kYes));
  }
  return profile;
}

}  // namespace

Result<envs::Profile> profile_of(const RunConfig& c) {
  const RunConfig usual;
  envs::Profile profile = envs::small_profile();
  if (c.env.profile.empty()) {
    profile.tools = TRY(envs::choose_tools(c.env.tools, envs::WithSearch::kYes));
    profile.output_bytes = c.env.output_bytes;
    profile.call_seconds = c.env.call_seconds;
    if (c.env.compact_at > 0)
      profile.compaction = {
          .at = c.env.compact_at, .request = envs::kCompactionRequest, .heading = envs::kCompactionHeading};
    return with_search(c, std::move(profile));
  }
  profile = TRY(envs::read_profile(c.env.profile));
  const bool is_doubled = c.env.output_bytes != usual.env.output_bytes ||
                          c.env.call_seconds != usual.env.call_seconds || c.env.compact_at != usual.env.compact_at ||
                          c.env.tools != envs::prompted_tools();
  if (is_doubled) {
    return fail(
        Status::invalid("env.profile says what env.tools, env.output_bytes, env.call_seconds and env.compact_at are")
            .hint("set them there, or leave env.profile out"));
  }
  return with_search(c, std::move(profile));
}

Status check(const RunConfig& c) {
  // All of it is told at once.
  std::vector<std::string> mistakes;
  const auto must = [&](Status status) {
    if (!status) mistakes.push_back(status.to_string());
  };
  const auto refuse = [&](bool wrong, const auto& words) {
    if (wrong) mistakes.push_back(words());
  };
  refuse(c.rollout.max_new_tokens >= c.rollout.max_tokens, [&] {
    return fmt::format("rollout.max_new_tokens ({}) must be below rollout.max_tokens ({})", c.rollout.max_new_tokens,
                       c.rollout.max_tokens);
  });
  refuse(!c.model.now.empty() && !parse_iso_time(c.model.now), [&] {
    return fmt::format("model.now is \"{}\", not a time like 2026-01-31 or 2026-01-31T12:30:00", c.model.now);
  });
  refuse(c.run.deterministic && c.trainer.max_lag != 0 && c.trainer.max_lag != RunConfig{}.trainer.max_lag,
         [] { return std::string("run.deterministic needs trainer.max_lag 0: a lag depends on timing"); });
  refuse(!c.tasks.path.empty() && c.tasks.heldout_split != "heldout", [&] {
    return fmt::format("tasks.heldout_split: {} is of the workspace family; leave it at heldout with tasks.path",
                       c.tasks.heldout_split);
  });
  refuse(c.tasks.path.empty() && c.tasks.kinds.empty(),
         [] { return std::string("tasks.kinds is empty: name the kinds to use, or leave it out for the usual ones"); });
  refuse(c.tasks.path.empty() && !c.tasks.set_kinds.empty(),
         [] { return std::string("tasks.set_kinds needs tasks.path; the workspace family has tasks.kinds"); });
  refuse(c.env.warm > c.env.most_warm, [&] {
    return fmt::format("env.warm ({}) must not be above env.most_warm ({})", c.env.warm, c.env.most_warm);
  });
  const auto of = [](const auto& result, const char* key) {
    return result ? Status() : Status(result.error()).at(key);
  };
  must(of(envs::AllowList::parse(c.env.network), "env.network"));
  if (Status status = weights_sync::check_store(c.trainer.weight_store); !status)
    must(std::move(status).at("trainer.weight_store"));
  refuse(c.run.relays > 0 && !c.trainer.weight_store.place.empty(), [] {
    return std::string(
        "run.relays and trainer.weight_store exclude each other: rollouts read new weights from relays or from the "
        "store; leave one out");
  });
  if (const auto profile = profile_of(c)) {
    refuse(profile->compaction.at + c.rollout.max_new_tokens > c.rollout.max_tokens && profile->compaction.at > 0, [&] {
      return fmt::format(
          "summaries of {} tokens (rollout.max_new_tokens) do not fit behind conversations of {} ({}): "
          "rollout.max_tokens "
          "is {}; at most {} would do",
          c.rollout.max_new_tokens, profile->compaction.at,
          c.env.profile.empty() ? "env.compact_at" : "compaction.at of env.profile", c.rollout.max_tokens,
          c.rollout.max_tokens - c.rollout.max_new_tokens);
    });
    for (auto& mistake : envs::package_mistakes(c.env.packages, profile->call_seconds))
      mistakes.push_back(std::move(mistake));
  }
  must(of(envs::parse_mcp_servers(c.env.mcp_servers), "env.mcp_servers"));
  refuse(c.env.tools.empty(), [] { return std::string("env.tools: a model needs one at least"); });
  if (!c.env.tools.empty()) {
    const auto tools = envs::choose_tools(c.env.tools, envs::WithSearch::kYes);
    must(of(tools, "env.tools"));
    if (const auto profile = profile_of(c); tools && !profile) must(profile.error());
  }
  for (const auto& mistake : reward_mistakes(c)) mistakes.push_back(mistake);
  for (auto& mistake : teacher_mistakes(c)) mistakes.push_back(std::move(mistake));
  if (!c.run.disk_limit.empty()) must(of(bytes_from(c.run.disk_limit), "run.disk_limit"));
  const auto external = envs::parse_environments(c.env.external);
  must(of(external, "env.external"));
  refuse(!c.env.external.empty() && c.env.external_seconds >= c.rollout.episode_seconds, [&] {
    return fmt::format(
        "env.external_seconds is {}, and an episode is taken back after rollout.episode_seconds = {}: a slow answer "
        "would never be waited for; lower the first or raise the second",
        c.env.external_seconds, c.rollout.episode_seconds);
  });
  if (external) {
    const auto family = envs::every_kind();
    std::vector<std::string_view> kinds(family.begin(), family.end());
    for (const auto& spec : *external) kinds.push_back(spec.name);
    for (const auto& spec : *external) {
      refuse(std::find(family.begin(), family.end(), spec.name) != family.end(),
             [&] { return fmt::format("env.external: {} is a kind of the workspace family", spec.name); });
      refuse(c.tasks.path.empty() &&
                 std::find(c.tasks.kinds.begin(), c.tasks.kinds.end(), spec.name) == c.tasks.kinds.end(),
             [&] { return fmt::format("env.external has {}, and tasks.kinds does not", spec.name); });
    }
    for (const auto& kind : c.tasks.kinds) {
      refuse(std::find(kinds.begin(), kinds.end(), kind) == kinds.end(), [&] {
        return fmt::format("tasks.kinds: \"{}\" is none{}", kind,
                           did_you_mean(kind, std::span<const std::string_view>(kinds)));
      });
    }
  }
  refuse(!c.env.external.empty() && !c.tasks.path.empty(),
         [] { return std::string("env.external goes with the workspace family: leave tasks.path empty"); });
  must(check_hosts(c.env.hosts));
  if (const auto profile = profile_of(c); profile && c.env.hosts != std::vector<std::string>{std::string(kLocalHost)}) {
    refuse(std::ranges::find(profile->tools, envs::kSearchTool) != profile->tools.end(), [] {
      return fmt::format("env.hosts: {} is not built yet for them; leave the tool out, or use run.hosts",
                         envs::kSearchTool);
    });
  }
  must(check_lent(c));
  must(check_hint_text(c));
  const auto algorithm = algorithm_of(c);
  if (!algorithm) must(algorithm.error());
  // Kinds of a set are known when the run begins.
  if (algorithm && !algorithm->parts.empty() && c.tasks.path.empty()) {
    if (const auto plan = plan_of(c, {}); !plan) must(plan.error());
  }
  for (size_t i = 0; algorithm && i <= algorithm->parts.size(); ++i) {
    const trainer::Algorithm& part = trainer::part_of(*algorithm, i);
    const bool of_subsets = part.advantage == AdvantageKind::kPassAtK;
    refuse(of_subsets && part.pass_k >= c.trainer.group_size, [&] {
      return fmt::format(
          "{}algorithm.pass_at_k.k is {}, and a group has trainer.group_size = {} episodes: it must be smaller, or all "
          "subsets are the same",
          part.kinds.empty() ? "" : fmt::format("algorithm.kinds: {}: ", fmt::join(part.kinds, ",")), part.pass_k,
          c.trainer.group_size);
    });
  }
  refuse(c.trainer.leave_out_truncated && algorithm && trainer::any_part(*algorithm, trainer::is_of_whole_batch), [] {
    return std::string(
        "trainer.leave_out_truncated: here the trainer makes the advantages, of the episodes that it is given, and "
        "those that were cut short would be missing in the baselines of their groups; turn it off, or take an "
        "algorithm whose advantages are of the group (docs/algorithms.md, The whole batch)");
  });
  const auto compares = [](const trainer::Algorithm& part) { return part.advantage != AdvantageKind::kDistill; };
  refuse(c.trainer.group_size == 1 && algorithm && trainer::any_part(*algorithm, compares), [] {
    return std::string(
        "trainer.group_size is 1, and an episode is compared with others of its group: make it 2 or more, or let a "
        "teacher say what is better (algorithm.advantage: distill)");
  });
  const bool has_teacher = c.algorithm.teacher.any();
  refuse(c.algorithm.shuffle_rewards && has_teacher, [] {
    return std::string(
        "algorithm.shuffle_rewards shuffles rewards alone, and the teacher would still teach: leave out "
        "algorithm.teacher, or the control");
  });
  const auto& branch = c.rollout.branch;
  refuse(branch.last_turn < branch.first_turn, [&] {
    return fmt::format("rollout.branch.last_turn ({}) must not be below rollout.branch.first_turn ({})",
                       branch.last_turn, branch.first_turn);
  });
  refuse(branch.ways > c.trainer.group_size, [&] {
    return fmt::format("rollout.branch.ways is {}, and a group has trainer.group_size = {} episodes: make it smaller",
                       branch.ways, c.trainer.group_size);
  });
  refuse(branch.ways > 1 && !c.env.external.empty(), [] {
    return std::string(
        "rollout.branch.ways: env.external has environments that cannot be branched; set it to 1, or leave them out");
  });
  const auto credits_functions = [](const trainer::Algorithm& part) {
    return trainer::is_function(part) && part.branches.by_tree;
  };
  refuse(branch.ways > 1 && algorithm && trainer::any_part(*algorithm, credits_functions), [] {
    return std::string(
        "algorithm.branch_credit: a loss of your own (torch) is given no weights of tokens, so what episodes share "
        "would count more than once unnoticed; set it to none");
  });
  if (const auto optimizer = optimizer_of(c); !optimizer) must(optimizer.error());
  refuse(c.trainer.minibatches > c.trainer.groups_per_step, [&] {
    return fmt::format("trainer.minibatches is {}, and a batch has trainer.groups_per_step = {}: groups stay whole",
                       c.trainer.minibatches, c.trainer.groups_per_step);
  });
  if (const auto kept = kept_checkpoints(c); !kept) must(kept.error());
  if (trainer::check_slots(c.trainer.slots)) must(check_ranks(c));  // else the optimizer's mistake
  if (mistakes.empty()) return {};
  return Status::invalid(join(mistakes, "\n"));
}

}  // namespace tandem::run
