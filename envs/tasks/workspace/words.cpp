// The vocabularies of tasks.
#include <algorithm>

#include "envs/tasks/workspace/parts.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kThings[] = {
    "cache",   "queue",   "session", "upload",  "retry",  "worker",  "buffer", "socket",  "backup",  "index",
    "login",   "search",  "report",  "mail",    "token",  "thread",  "batch",  "render",  "import",  "export",
    "payment", "invoice", "cart",    "order",   "sensor", "camera",  "engine", "printer", "scanner", "router",
    "proxy",   "gateway", "cluster", "replica", "shard",  "stream",  "topic",  "event",   "alert",   "metric",
    "log",     "trace",   "audit",   "user",    "group",  "profile", "avatar", "image",   "video",   "audio",
    "page",    "widget",  "theme",   "menu",    "dialog", "window",  "cursor", "font",    "screen",  "map",
    "garden",  "orchard", "kitchen", "library", "museum", "ticket",  "seat",   "lane",    "dock",    "crane"};
constexpr std::string_view kAspects[] = {
    "limit",  "size", "timeout", "interval",  "delay",  "count",  "depth",   "width",  "height", "level",
    "ratio",  "rate", "offset",  "capacity",  "quota",  "budget", "margin",  "weight", "length", "period",
    "window", "step", "factor",  "threshold", "age",    "mode",   "color",   "format", "name",   "owner",
    "region", "zone", "target",  "source",    "prefix", "suffix", "version", "status", "port",   "host"};
constexpr std::string_view kPrograms[] = {
    "billing", "catalog", "courier",  "ledger",  "beacon",  "harvest", "mosaic", "pioneer", "quarry",  "rocket",
    "saturn",  "timber",  "umbrella", "velvet",  "walnut",  "yonder",  "zephyr", "anchor",  "bramble", "canyon",
    "delta",   "ember",   "falcon",   "granite", "horizon", "island",  "jasper", "kernel",  "lantern", "meadow",
    "nimbus",  "onyx",    "pebble",   "quartz",  "ripple",  "summit",  "tundra", "upland",  "violet",  "willow"};
constexpr std::string_view kPersons[] = {"Alice",   "Bruno", "Carla",  "Dmitri", "Elena",  "Felix",  "Greta",  "Hassan",
                                         "Irene",   "Jonas", "Karin",  "Luca",   "Maria",  "Nadia",  "Oscar",  "Paula",
                                         "Quentin", "Rosa",  "Stefan", "Tanya",  "Ulrich", "Vera",   "Walter", "Xenia",
                                         "Yusuf",   "Zoe",   "Amara",  "Bela",   "Chiara", "Devon",  "Edith",  "Farid",
                                         "Gloria",  "Hugo",  "Ingrid", "Jamal",  "Keiko",  "Leonid", "Mina",   "Noel"};
constexpr std::string_view kPlaces[] = {"Lisbon", "Oslo",    "Cairo",  "Lima",   "Quito",  "Hanoi",  "Dublin", "Prague",
                                        "Vienna", "Athens",  "Madrid", "Berlin", "Warsaw", "Geneva", "Zagreb", "Tunis",
                                        "Accra",  "Nairobi", "Bogota", "Havana", "Kyoto",  "Osaka",  "Perth",  "Sydney",
                                        "Boston", "Denver",  "Austin", "Turin",  "Lyon",   "Porto",  "Bergen", "Malmo",
                                        "Krakow", "Basel",   "Ghent",  "Leeds",  "Cork",   "Split",  "Varna",  "Izmir"};
constexpr std::string_view kAdjectives[] = {
    "copper", "silver", "amber",  "crimson", "quiet",  "rapid",  "gentle", "hollow",  "narrow", "bright",
    "frozen", "golden", "hidden", "humble",  "lively", "mellow", "noble",  "patient", "plain",  "proud",
    "rustic", "sharp",  "shiny",  "silent",  "simple", "smooth", "solid",  "steady",  "stormy", "sunny",
    "tall",   "tidy",   "tiny",   "vivid",   "warm",   "wild",   "wooden", "yellow",  "young",  "early"};
constexpr std::string_view kStems[] = {
    "app",   "main",    "server", "client",  "settings", "options", "config", "defaults", "service", "runtime",
    "notes", "tasks",   "readme", "journal", "todo",     "agenda",  "draft",  "minutes",  "summary", "changes",
    "data",  "records", "stock",  "prices",  "visits",   "orders",  "scores", "totals",   "results", "history",
    "tools", "shapes",  "names",  "items",   "parts",    "routes",  "models", "views",    "jobs",    "plans"};

}  // namespace

std::span<const std::string_view> words(Words list) {
  switch (list) {
    case Words::kThing:
      return kThings;
    case Words::kAspect:
      return kAspects;
    case Words::kProgram:
      return kPrograms;
    case Words::kPerson:
      return kPersons;
    case Words::kPlace:
      return kPlaces;
    case Words::kAdjective:
      return kAdjectives;
    case Words::kStem:
      return kStems;
  }
  return {};
}

// A word that nobody knows, of two or three syllables, on the training side: with lists alone a model learns to copy
// the words of the lists.
std::string Vocabulary::made_up(Words list) {
  static constexpr std::string_view kOnsets[] = {"b",  "c",  "d",  "f",  "g",  "h",  "j",  "k",  "l",  "m",  "n",
                                                 "p",  "r",  "s",  "t",  "v",  "w",  "z",  "br", "cl", "dr", "fl",
                                                 "gr", "pl", "pr", "sk", "sl", "st", "th", "tr", "qu", "sh"};
  static constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "ea", "oo", "ou"};
  static constexpr std::string_view kCodas[] = {"", "", "", "n", "r", "l", "s", "t", "m", "nd", "rk", "st", "x", "ck"};
  std::string word;
  do {
    word.clear();
    const auto syllables = random_.between(2, 3);
    for (int64_t i = 0; i < syllables; ++i) {
      word.append(random_.pick(kOnsets)).append(random_.pick(kVowels)).append(random_.pick(kCodas));
    }
    if (list == Words::kStem && random_.chance(0.2)) word += std::to_string(random_.between(1, 9));
    if (list == Words::kPerson || list == Words::kPlace) word[0] = static_cast<char>(word[0] - 'a' + 'A');
  } while (held_out(word) || std::find(used_.begin(), used_.end(), word) != used_.end());
  used_.push_back(word);
  return word;
}

std::string Vocabulary::draw(Words list) {
  constexpr double kMadeUp = 0.5;
  if (sides_.practice && random_.chance(kMadeUp)) return made_up(list);
  auto fresh = side(words(list), sides_.new_names);
  const auto all = fresh;
  std::erase_if(fresh, [&](auto word) { return std::find(used_.begin(), used_.end(), word) != used_.end(); });
  std::string word(random_.pick(fresh.empty() ? all : fresh));
  used_.push_back(word);
  return word;
}

std::string Vocabulary::setting() { return draw(Words::kThing) + "_" + draw(Words::kAspect); }
std::string Vocabulary::number() { return std::to_string(random_.between(12, random_.chance(0.5) ? 99 : 4999)); }

std::string Vocabulary::value_for_setting() {
  switch (random_.below(4)) {
    case 0:
      return draw(Words::kAdjective);
    case 1:
      return draw(Words::kProgram);
    default:
      return number();
  }
}

std::string Vocabulary::file_stem() { return random_.chance(0.5) ? draw(Words::kStem) : draw(Words::kProgram); }
std::string Vocabulary::person() { return draw(Words::kPerson); }
std::string Vocabulary::label() { return draw(Words::kAdjective) + " " + draw(Words::kProgram); }

}  // namespace tandem::envs
