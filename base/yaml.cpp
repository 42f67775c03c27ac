#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <optional>
#include <sstream>

namespace tandem {
namespace {

// Where a document begins, and whether there is anything in it.
class Beginning final : public YAML::EventHandler {
 public:
  int position() const { return mark_ ? mark_->pos : -1; }
  const YAML::Mark& mark() const { return *mark_; }
  bool empty() const { return empty_; }

 private:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { see(mark, true); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { see(mark, false); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    see(mark, false);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    see(mark, false);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    see(mark, false);
  }
  void OnMapEnd() override {}

  void see(const YAML::Mark& mark, bool empty) {
    if (mark_) return;
    mark_ = mark;
    empty_ = empty;
  }
  std::optional<YAML::Mark> mark_;
  bool empty_ = true;
};

}  // namespace

YAML::Node load_yaml(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  int last = -1;
  for (int number = 0;; ++number) {
    Beginning document;
    if (!parser.HandleNextDocument(document) || document.position() < 0) break;
    if (document.position() == last) throw YAML::ParserException(document.mark(), "this cannot begin anything");
    if (number > 0 && !document.empty())
      throw YAML::ParserException(document.mark(), "a second document begins here; only one is read");
    last = document.position();
  }
  return YAML::Load(text);
}

}  // namespace tandem
