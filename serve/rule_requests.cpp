#include "serve/rule_requests.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "serve/api_error.h"

namespace tandem::serve {
namespace {

using wire::HttpReply;
using wire::HttpRequest;

constexpr FieldRow kSubjectFields[] = {
    {"of", Effect::kTakes, R"({"type":"string","enum":["key","class","model","session"]})", "What it is about."},
    {"name", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":4096})",
     "Of that key, class, model or session."},
};
constexpr FieldRow kActionFields[] = {
    {"action", Effect::kTakes, R"({"type":"string","enum":["block","drain","lower"]})",
     "block: new requests are refused, those that run end; drain: new ones are refused; lower: they are of a lower "
     "class."},
    {"to", Effect::kTakes, R"({"type":"string","enum":["autocomplete","interactive","agent","batch"]})",
     "The class of lower. Default batch."},
    {"reason", Effect::kTakes, R"({"type":"string","maxLength":500})", "Told to clients, and in the log."},
};

template <size_t N>
size_t place_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) - names.begin();
}

RuleOf subject_of(const Fields& fields) { return static_cast<RuleOf>(place_of(kRuleSubjects, fields.text("of"))); }

// In a line of the log.
std::string shown(std::string_view text) { return dump_json(Json(text.substr(0, 200))); }

std::string described(const Rule& rule) {
  return fmt::format("{} {} {}{}", name_of(rule.action), name_of(rule.of), shown(rule.name),
                     rule.action == RuleAction::kLower ? fmt::format(" to {}", name_of(rule.to)) : "");
}

Json json_of(const Rule& rule) {
  Json json = {{"of", name_of(rule.of)}, {"name", rule.name}, {"action", name_of(rule.action)}};
  if (rule.action == RuleAction::kLower) json["to"] = name_of(rule.to);
  json["reason"] = rule.reason;
  json["by"] = rule.by;
  return json;
}

}  // namespace

RuledRequests requests_of(const ModelSet& models) {
  const auto has_model = [&models](const std::string& name) {
    const auto adapters = models.adapters();
    return models.find(name).has_value() || std::ranges::find(adapters, name, &ServedAdapter::name) != adapters.end();
  };
  const auto end = [&models](const Rule& rule, const std::string& message) {
    for (const auto& lane : models.lanes()) {
      lane->end_those(403, message, [&](const Lane::Request& request) {
        auto names = lane->settings().names;
        if (!request.adapter.empty()) names.push_back(request.adapter);
        return concerns(rule, {.key = request.key,
                               .session = request.session,
                               .models = names,
                               .priority = request.prepared.generation.priority});
      });
    }
  };
  return {.has_model = has_model,
          .unknown = [&models](const std::string& name) { return models.unknown(name); },
          .end = end};
}

void RuleRequests::add_to(BodyPaths& paths) {
  paths.add({"/rules",
             "GET",
             "What admins have said of requests",
             FieldTable({}),
             {},
             [this](const HttpRequest&, Fields&, const std::string&, const HttpReply& reply) { show(reply); }});
  paths.add({"/rules/set",
             "POST",
             "Blocks, drains or lowers requests of a key, class, model or session",
             FieldTable({kSubjectFields, kActionFields}),
             {"of", "name", "action"},
             [this](const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
               set(fields, who, reply);
             }});
  paths.add({"/rules/remove",
             "POST",
             "Takes such a rule back",
             FieldTable({kSubjectFields}),
             {"of", "name"},
             [this](const HttpRequest&, Fields& fields, const std::string& who, const HttpReply& reply) {
               remove(fields, who, reply);
             }});
}

void RuleRequests::show(const HttpReply& reply) const {
  Json rules = Json::array();
  for (const Rule& rule : access_.rules().all()) rules.push_back(json_of(rule));
  reply(json_response(200, {{"rules", std::move(rules)}}));
}

void RuleRequests::set(Fields& fields, const std::string& who, const HttpReply& reply) {
  Rule rule{.of = subject_of(fields),
            .name = fields.text("name"),
            .action = static_cast<RuleAction>(place_of(kRuleActions, fields.text("action"))),
            .to = serve::priority_of(fields.text("to", "batch")).value_or(Priority::kBatch),
            .reason = fields.text("reason"),
            .by = who};
  if (rule.of == RuleOf::kClass && !serve::priority_of(rule.name)) {
    return reply(error_response(400, fmt::format("\"name\" of a class must be one of {}", fmt::join(kPriorities, ", ")),
                                "name"));
  }
  if (rule.of == RuleOf::kKey && !access_.may_have_key(rule.name)) {
    return reply(error_response(404, fmt::format("there is no key called {}", shown(rule.name)), "name"));
  }
  if (rule.of == RuleOf::kModel && !requests_.has_model(rule.name)) return reply(requests_.unknown(rule.name));
  if (!access_.rules().set(rule)) {
    return reply(error_response(409, fmt::format("there are {} rules already; remove some", Rules::kMost)));
  }
  spdlog::info("an admin ({}) says: {}{}", who, described(rule), rule.reason.empty() ? "" : ", " + shown(rule.reason));
  if (rule.action == RuleAction::kBlock) {
    const auto message = fmt::format("requests of this {} are blocked", name_of(rule.of)) +
                         (rule.reason.empty() ? "" : ": " + rule.reason);
    requests_.end(rule, message);
  }
  show(reply);
}

void RuleRequests::remove(Fields& fields, const std::string& who, const HttpReply& reply) {
  const std::string name = fields.text("name");
  if (!access_.rules().remove(subject_of(fields), name)) {
    return reply(
        error_response(404, fmt::format("there is no rule about the {} {}", fields.text("of"), shown(name)), "name"));
  }
  spdlog::info("an admin ({}) says: allow {} {}", who, fields.text("of"), shown(name));
  show(reply);
}

}  // namespace tandem::serve
