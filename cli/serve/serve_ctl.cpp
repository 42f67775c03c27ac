#include "cli/serve/serve_ctl.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "base/book.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/serve/admin_client.h"
#include "serve/keys.h"

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kCtlLimit = 30s;
constexpr Duration kLoadAdapterLimit = 90s;  // more than the server takes

struct CtlOptions {
  std::string action, subject, server, to = "batch", reason, key_variable = "TANDEM_ADMIN_KEY";
  std::string model;
  bool replace = false;
  bool json = false;
};

// load NAME=DIR, unload NAME, adapters.
Result<Json> ask_about_adapters(const CtlOptions& o, const AdminClient& client) {
  if (o.action == "adapters") {
    if (!o.subject.empty()) return fail(Status::invalid("adapters shows all and takes no subject").at("SUBJECT"));
    const Json models = TRY(client.ask("GET", "/v1/models", Json(), kCtlLimit));
    Json adapters = Json::array();
    for (const Json& one : models.value("data", Json::array())) {
      if (one.is_object() && one.contains("parent") && one["parent"].is_string()) adapters.push_back(one);
    }
    return Json{{"adapters", std::move(adapters)}};
  }
  const size_t equals = o.subject.find('=');
  const bool load = o.action == "load";
  if (o.subject.empty() || load != (equals != std::string::npos) || (load && equals + 1 == o.subject.size())) {
    return fail(Status::invalid(fmt::format("\"{}\" is not what {} takes", o.subject, o.action))
                    .at("SUBJECT")
                    .hint(load ? "write NAME=DIR" : "write the adapter's NAME"));
  }
  Json body = {{"lora_name", o.subject.substr(0, equals)}};
  if (!load) return client.ask("POST", "/v1/unload_lora_adapter", body, kCtlLimit);
  // As the server sees it, where both are on one machine.
  std::error_code error;
  const auto whole = std::filesystem::absolute(o.subject.substr(equals + 1), error);
  body["lora_path"] = error ? o.subject.substr(equals + 1) : whole.string();
  body["load_inplace"] = o.replace;
  if (!o.model.empty()) body["base_model"] = o.model;
  auto answer = client.ask("POST", "/v1/load_lora_adapter", body, kLoadAdapterLimit);
  if (!answer && !o.replace && answer.error().message().find("load_inplace") != std::string::npos)
    return fail(std::move(answer).error().hint("--replace loads it in place of the other"));
  return answer;
}

void show_adapters(const Json& answer) {
  const auto text = [](const Json& of, const char* key) {
    const Json value = of.value(key, Json());
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  if (!answer.contains("adapters")) {
    fmt::print("{} {} of {}\n", text(answer, "status"), text(answer, "lora_name"), text(answer, "parent"));
    return;
  }
  if (answer["adapters"].empty()) fmt::print("no adapters\n");
  for (const Json& one : answer["adapters"])
    fmt::print("{}  of {}  ({})\n", text(one, "id"), text(one, "parent"), text(one, "root"));
}

// processes, revive NAME.
Result<Json> ask_about_processes(const CtlOptions& o, const AdminClient& client) {
  const bool revive = o.action == "revive";
  if (revive == o.subject.empty()) {
    return fail(
        Status::invalid(revive ? "revive takes the name of a model" : "processes shows all and takes no subject")
            .at("SUBJECT"));
  }
  if (revive) return client.ask("POST", "/processes/revive", {{"model", o.subject}}, kCtlLimit);
  return client.ask("GET", "/processes", Json(), kCtlLimit);
}

void show_processes(const Json& answer) {
  if (!answer.contains("processes")) {
    fmt::print("{} {}\n", answer.value("model", std::string()), answer.value("status", std::string()));
    return;
  }
  fmt::print("{:20} {:>8}  {:10}  {:19}  {:>8}  {:>10}  {}\n", "MODEL", "PID", "STATE", "SINCE", "RESTARTS", "MEMORY",
             "LAST CAUSE");
  for (const Json& one : answer["processes"]) {
    const Json pid = one.value("pid", Json());
    const double since = one.value("since", 0.0);
    fmt::print("{:20} {:>8}  {:10}  {:19}  {:>8}  {:>10}  {}\n", one.value("model", std::string()),
               pid.is_number_integer() ? std::to_string(pid.get<int64_t>()) : "-", one.value("state", std::string()),
               since > 0 ? fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(since))) : "-",
               one.value("restarts", 0), format_bytes(one.value("memory_bytes", uint64_t{0})),
               one.value("last_cause", std::string()));
  }
}

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
  if (o.action == "load" || o.action == "unload" || o.action == "adapters") {
    answer = TRY(ask_about_adapters(o, client));
    if (o.json)
      fmt::print("{}\n", dump_json_line(answer));
    else
      show_adapters(answer);
    return kDone;
  }
  if (o.action == "processes" || o.action == "revive") {
    answer = TRY(ask_about_processes(o, client));
    if (o.json)
      fmt::print("{}\n", dump_json_line(answer));
    else
      show_processes(answer);
    return kDone;
  }
  if (o.action == "traces") {
    if (!o.subject.empty()) return fail(Status::invalid("traces shows all and takes no subject").at("SUBJECT"));
    fmt::print("{}\n", dump_json_line(TRY(client.ask("GET", "/traces", Json(), kCtlLimit))));
    return kDone;
  }
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
    fmt::print("{}\n", dump_json_line(answer));
  else
    show_rules(answer);
  return kDone;
}

}  // namespace

Action add_serve_ctl(CLI::App& command) {
  auto* const ctl = command.add_subcommand(
      "ctl", "Block, drain or lower requests of a server that runs; load and unload its adapters; see where time went");
  const auto o = std::make_shared<CtlOptions>();
  ctl->add_option(
         "ACTION", o->action,
         "block: new requests are refused, those that run end; drain: new ones are refused; lower: they are of a "
         "lower class; allow: takes it back; list; load, unload: a LoRA adapter; adapters: those that are loaded; "
         "traces: where the time of the last slow requests went, JSON for ui.perfetto.dev; of a server with --isolate "
         "processes: each model's, revive: one that has failed is tried again")
      ->required()
      ->check(CLI::IsMember(
          {"block", "drain", "lower", "allow", "list", "load", "unload", "adapters", "traces", "processes", "revive"}));
  ctl->add_option(
      "SUBJECT", o->subject,
      "key=NAME, class=NAME, model=NAME or session=NAME; of load NAME=DIR, of unload NAME, of revive MODEL");
  ctl->add_option("--base-model", o->model, "Of load: the model that the adapter is for (default: the first)");
  ctl->add_flag("--replace", o->replace, "Of load: in place of another adapter of the name");
  ctl->add_option("--server", o->server, "URL of the `tandem serve`")->required();
  ctl->add_option("--to", o->to, "The class of lower")
      ->check(CLI::IsMember({"autocomplete", "interactive", "agent", "batch"}))
      ->capture_default_str();
  ctl->add_option("--reason", o->reason, "Told to clients, and in the server's log");
  ctl->add_option("--admin-key-env", o->key_variable, "Environment variable with an admin's key of the server")
      ->capture_default_str();
  ctl->add_flag("--json", o->json, "Print the rules, or what became of adapters, as a JSON object");
  ctl->footer(
      "Rules end with the server; each leaves a line in its log.\n\n"
      "Examples:\n"
      "  tandem serve ctl block key=editor --server http://127.0.0.1:8000 --reason \"asks in a loop\"\n"
      "  tandem serve ctl lower session=nightly --to batch --server http://127.0.0.1:8000\n"
      "  tandem serve ctl list --server http://127.0.0.1:8000\n"
      "  tandem serve ctl load sql=runs/sql/adapter --server http://127.0.0.1:8000\n"
      "  tandem serve ctl unload sql --server http://127.0.0.1:8000\n"
      "  tandem serve ctl processes --server http://127.0.0.1:8000\n"
      "  tandem serve ctl traces --server http://127.0.0.1:8000 > traces.json");
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
