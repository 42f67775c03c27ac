#include "cli/serve/serve_ctl.h"

#include <fmt/format.h>

#include "base/book.h"
#include "base/text.h"
#include "cli/serve/admin_client.h"
#include "serve/keys.h"

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kCtlLimit = 30s;

struct CtlOptions {
  std::string action, subject, server, to = "batch", reason, key_variable = "TANDEM_ADMIN_KEY";
  bool json = false;
};

void show_rules(const Json& answer) {
  const Json rules = answer.value("rules", Json::array());
  if (rules.empty()) fmt::print("no rules\n");
  for (const Json& rule : rules) {
    const auto text = [&](const char* key) { return rule.value(key, std::string()); };
    const std::string to = text("to"), reason = text("reason");
    fmt::print("{:6} {}={}{}  ({}{})\n", text("action"), text("of"), text("name"), to.empty() ? "" : " to " + to,
               text("by"), reason.empty() ? "" : ", " + dump_json(Json(reason)));
  }
}

Result<int> run_ctl(const CtlOptions& o) {
  const auto client = TRY(AdminClient::open(o.server, TRY(admin_key(o.key_variable))));
  Json answer;
  if (o.action == "list") {
    if (!o.subject.empty()) return fail(Status::invalid("list shows all rules and takes no subject").at("SUBJECT"));
    answer = TRY(client.ask("GET", "/rules", Json(), kCtlLimit));
  } else {
    const size_t equals = o.subject.find('=');
    if (equals == std::string::npos || equals + 1 == o.subject.size()) {
      return fail(Status::invalid(fmt::format("\"{}\" names nothing", o.subject))
                      .at("SUBJECT")
                      .hint("write key=NAME, class=NAME, model=NAME or session=NAME"));
    }
    Json body = {{"of", o.subject.substr(0, equals)}, {"name", o.subject.substr(equals + 1)}};
    if (o.action != "allow") {
      body["action"] = o.action;
      body["reason"] = o.reason;
      if (o.action == "lower") body["to"] = o.to;
    }
    answer = TRY(client.ask("POST", o.action == "allow" ? "/rules/remove" : "/rules/set", body, kCtlLimit));
  }
  if (o.json)
    fmt::print("{}\n", dump_json(answer));
  else
    show_rules(answer);
  return kDone;
}

}  // namespace

Action add_serve_ctl(CLI::App& command) {
  auto* const ctl = command.add_subcommand("ctl", "Block, drain or lower requests of a server that runs");
  const auto o = std::make_shared<CtlOptions>();
  ctl->add_option(
         "ACTION", o->action,
         "block: new requests are refused, those that run end; drain: new ones are refused; lower: they are of a "
         "lower class; allow: takes it back; list")
      ->required()
      ->check(CLI::IsMember({"block", "drain", "lower", "allow", "list"}));
  ctl->add_option("SUBJECT", o->subject, "key=NAME, class=NAME, model=NAME or session=NAME");
  ctl->add_option("--server", o->server, "URL of the `tandem serve`")->required();
  ctl->add_option("--to", o->to, "The class of lower")
      ->check(CLI::IsMember({"autocomplete", "interactive", "agent", "batch"}))
      ->capture_default_str();
  ctl->add_option("--reason", o->reason, "Told to clients, and in the server's log");
  ctl->add_option("--admin-key-env", o->key_variable, "Environment variable with an admin's key of the server")
      ->capture_default_str();
  ctl->add_flag("--json", o->json, "Print the rules as a JSON object");
  ctl->footer(
      "Rules end with the server; each leaves a line in its log.\n\n"
      "Examples:\n"
      "  tandem serve ctl block key=editor --server http://127.0.0.1:8000 --reason \"asks in a loop\"\n"
      "  tandem serve ctl lower session=nightly --to batch --server http://127.0.0.1:8000\n"
      "  tandem serve ctl list --server http://127.0.0.1:8000");
  return [o] { return run_ctl(*o); };
}

Action add_serve_new_key(CLI::App& command) {
  auto* const sub = command.add_subcommand("new-key", "Make a key, and its entry for a book of keys");
  const auto name = std::make_shared<std::string>();
  sub->add_option("NAME", *name, "What the book calls it")->required();
  sub->footer(
      "The entry goes to stdout, the key itself to stderr: it stands nowhere else.\n\n"
      "Examples:\n  tandem serve new-key editor >> keys.yaml");
  return [name]() -> Result<int> {
    if (!is_entry_name(*name)) {
      return fail(
          Status::invalid("the name of a key is 1 to 64 letters, digits, - and _, and not \"extends\"").at("NAME"));
    }
    const auto key = serve::make_key();
    fmt::print("{}:\n  sha256: {}\n", *name, key.sha256);
    fmt::print(stderr, "the key of {}: {}\n", *name, key.text);
    return kDone;
  };
}

}  // namespace tandem::cli
