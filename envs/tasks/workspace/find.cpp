// find: say which function does what is described. No word of the question that means something stands in the file
// of the function: it is found by reading, or by a search for what is meant.
#include <algorithm>
#include <cctype>
#include <set>

#include "base/text.h"
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

// What a function does: as its author says it, its lines, and as others ask for it.
struct Deed {
  std::string_view note, body, asked, asked_too;
};

constexpr Deed kDeeds[] = {
    {"Drop every login whose lifetime is over.", "for k in list(s):\n    if s[k].until < t:\n        del s[k]",
     "expired sessions are thrown away", "stale user sessions get purged"},
    {"Try once more after a pause that doubles each time.",
     "d = 1\nfor _ in range(n):\n    if f():\n        return True\n    sleep(d)\n    d *= 2",
     "a failed request is repeated with exponential backoff", "requests are retried with growing delays"},
    {"Turn the picture by a quarter to the right.", "return [list(r)[::-1] for r in zip(*m[::-1])][::-1]",
     "an image is rotated clockwise", "photographs are rotated by ninety degrees"},
    {"Pack bytes so that they take less room on disk.", "return zlib.compress(b, 9)",
     "data is compressed before storage", "a payload is made smaller by compression"},
    {"Add up what the customer has to pay, tax included.", "s = sum(i.price * i.n for i in c)\nreturn s * (1 + r)",
     "the total of a shopping basket is computed", "an invoice amount is calculated for the buyer"},
    {"Write down who did what and when.", "with open(p, 'a') as o:\n    o.write(f'{t} {u} {w}\\n')",
     "an audit trail is recorded", "user actions are logged for auditing"},
    {"Check that the secret typed in is the right one.", "return hmac.compare_digest(h(x, k), v)",
     "a password is verified", "login credentials are authenticated"},
    {"Cut the text into single words.", "return re.findall(r'[a-z]+', x.lower())", "a sentence is tokenized",
     "a string is split by a tokenizer"},
    {"Tell the phone that something has come.", "for d in ds:\n    d.push({'t': t, 'b': b})",
     "notifications are delivered to mobile devices", "an alert is sent to somebody's handset"},
    {"Keep the last answers at hand so that they need not be made again.",
     "if k in c:\n    return c[k]\nc[k] = f(k)\nreturn c[k]", "results are cached",
     "memoization avoids repeated computation"},
    {"Take money back to the card after a return.", "g.credit(o.card, o.paid)\no.state = 'back'",
     "a purchase is refunded", "a refund is issued to the buyer"},
    {"Make sure that no two workers do the same job.",
     "while not r.set(k, 1, nx=True):\n    sleep(0.1)\ntry:\n    f()\nfinally:\n    r.delete(k)",
     "a mutual exclusion lock is acquired", "concurrent access is prevented by locking"},
    {"From degrees of one scale to the other.", "return (x - 32) * 5 / 9", "Fahrenheit is converted to Celsius",
     "temperatures are translated between units"},
    {"How far apart two places on the globe are.",
     "a = sin(d / 2) ** 2 + cos(p) * cos(q) * sin(l / 2) ** 2\nreturn 12742 * asin(sqrt(a))",
     "geographic distance is measured from latitude and longitude", "kilometres between cities are computed"},
    {"Put the newest first.", "return sorted(xs, key=lambda i: i.at, reverse=True)",
     "posts are ordered chronologically, most recent on top", "articles are arranged by publication date"},
    {"Leave out what comes twice.", "seen = set()\nreturn [i for i in xs if not (i in seen or seen.add(i))]",
     "duplicate entries are removed", "a collection is deduplicated"},
    {"Guess which tongue a letter is in.", "return max(ps, key=lambda p: ps[p].score(x))",
     "the language of a document is detected", "foreign text is identified as French or German"},
    {"Draw bars as high as the numbers.", "for i, v in enumerate(vs):\n    c.rect(i * w, 0, w - 2, v)",
     "a chart is plotted", "a histogram diagram is rendered"},
    {"Stop letting a caller in who knocks too often.",
     "n = b.get(a, 0) + 1\nb[a] = n\nif n > 60:\n    raise Refused(a)", "rate limiting of clients is enforced",
     "abusive traffic is throttled"},
    {"Read the settings, the machine's own over the general ones.",
     "c = yaml.load(open(g))\nc.update(yaml.load(open(m)))\nreturn c", "configuration files are merged",
     "host specific configuration overrides defaults"},
    {"Bring the tables to the shape that this release wants.",
     "for s in sorted(steps):\n    if s.n > v:\n        s.run(db)\n        v = s.n", "database migrations are applied",
     "the schema is upgraded to another version"},
    {"Shut what was open when the program ends.", "for r in reversed(rs):\n    r.close()\nrs.clear()",
     "resources are released during shutdown", "file handles are cleaned up at exit"},
    {"Make a short code for a long address.", "n = db.insert(u)\nreturn base62(n)", "a URL is shortened",
     "links are abbreviated into tiny identifiers"},
    {"See whether the mail address can be one.", "return bool(re.fullmatch(r'[^@ ]+@[^@ ]+[.][a-z]+', x))",
     "an e-mail field is validated", "malformed contact details are rejected"},
    {"Ask the sky service what tomorrow brings.", "j = get(base + '/daily', q=p).json()\nreturn j['days'][1]",
     "a weather forecast is fetched", "meteorological predictions are downloaded"},
    {"Spread work over the machines that have the least to do.",
     "m = min(ms, key=lambda i: i.load)\nm.take(j)\nreturn m", "load balancing among servers happens",
     "jobs are distributed to idle nodes"},
    {"Make the letters unreadable for whoever lacks the key.", "n = urandom(12)\nreturn n + AESGCM(k).seal(n, b)",
     "confidential content is encrypted", "a plaintext is enciphered"},
    {"Count how often each thing occurs.", "d = {}\nfor i in xs:\n    d[i] = d.get(i, 0) + 1\nreturn d",
     "a frequency table is built", "occurrence statistics are tallied"},
    {"Find the shortest way through the net of roads.",
     "while q:\n    c, n = heappop(q)\n    if n == b:\n        return c\n    for m, w in g[n]:\n        heappush(q, (c "
     "+ w, m))",
     "route planning with Dijkstra's algorithm is done", "navigation computes an optimal path"},
    {"Bring somebody who pays nothing yet to pay monthly.", "u.plan = p\nb.start(u, p, t)",
     "a trial account is upgraded to a subscription", "free members become subscribers"},
};

constexpr std::string_view kWhich[] = {"which function is it",
                                       "name the function",
                                       "what is that function called",
                                       "tell me the function's name",
                                       "give the name of the function",
                                       "which function does that",
                                       "find the function",
                                       "which of the functions is that",
                                       "say which function it is",
                                       "what is the name of that function"};
constexpr std::string_view kFindFrames[] = {"In one place of {project} {asked}; <which><tail>",
                                            "Somewhere in {project} {asked}: <which><tail>",
                                            "<open> look in {project} for where {asked}, and <which><tail>",
                                            "Where in {project} is it that {asked}? <which><tail>",
                                            "One of the functions of {project} is for this: {asked}. <which><tail>",
                                            "I look for the place in {project} where {asked}. <which><tail>",
                                            "{asked} in {project}, but where? <which><tail>",
                                            "<which>, in {project}: the one by which {asked}<tail>",
                                            "There is code in {project} by which {asked}; <which><tail>"};
constexpr Grammar::Part kFindParts[] = {{"which", kWhich}, {"open", kOpen}, {"tail", kReport}};

constexpr size_t kFindFiles = 10;  // of three functions each: more than one result of a call shows

// Words of five letters and more that say something.
std::vector<std::string> meaning_of(std::string_view asked) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (word.size() >= 5 && word != "where" && word != "their" && word != "between" && word != "after")
      words.push_back(word);
    word.clear();
  };
  for (const char c : asked) {
    if (std::isalpha(static_cast<unsigned char>(c)) == 0) {
      end();
    } else {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  end();
  return words;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string function_of(const std::string& name, const Deed& deed) {
  std::string text = "def " + name + "(*args):\n    \"\"\"" + std::string(deed.note) + "\"\"\"\n";
  for (const auto line : split(deed.body, '\n')) text += "    " + std::string(line) + "\n";
  return text;
}

}  // namespace

bool build_find(Draft& draft) {
  Task& task = draft.task;
  // Questions of one side are of deeds of that side; the files have deeds of both.
  std::vector<std::string_view> notes;
  for (const auto& deed : kDeeds) notes.push_back(deed.note);
  const auto own = phrases_of_side(notes, draft.sides.new_wordings);
  const auto wanted = draft.random.pick(own);
  std::vector<const Deed*> deeds;
  for (const auto& deed : kDeeds) deeds.push_back(&deed);
  for (size_t i = deeds.size(); i > 1; --i) std::swap(deeds[i - 1], deeds[draft.random.below(i)]);

  std::string name, path_of_it;
  std::set<std::string> names;
  const Deed* asked_for = nullptr;
  const auto project = draft.words.draw(Words::kThing) + "_" + draft.words.draw(Words::kAspect);
  for (size_t file = 0; file < kFindFiles; ++file) {
    const auto path = project + "/" + draft.new_path("py");
    std::string content;
    for (size_t i = 0; i < 3; ++i) {
      const Deed& deed = *deeds[3 * file + i];
      const auto called = lower(draft.words.draw(Words::kPlace)) + "_" + draft.words.number();
      if (!names.insert(called).second) return false;
      content += (content.empty() ? "" : "\n\n") + function_of(called, deed);
      if (deed.note == wanted) {
        asked_for = &deed;
        name = called;
        path_of_it = path;
      } else {
        task.expectation.distractors.push_back(called);
      }
    }
    task.files[path] = content;
  }
  const auto asked = std::string(draft.random.chance(0.5) ? asked_for->asked : asked_for->asked_too);
  const auto text = lower(task.files.at(path_of_it));
  for (const auto& word : meaning_of(asked)) {
    if (text.find(word) != std::string::npos) return false;
  }
  draft.instruct({kFindFrames, kFindParts}, {{"asked", asked}, {"project", project}});
  task.expectation.files = task.files;
  task.expectation.answer = name;
  task.solution.turns = {{Call{"codebase_search", {{"query", asked}}}}};
  task.solution.answer = name;
  return true;
}

}  // namespace tandem::envs
