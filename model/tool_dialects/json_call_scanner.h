// Name and arguments out of one object: the parts that are as they should be.
#pragma once

#include "model/tool_dialects/call_scanner.h"
#include "model/tool_dialects/object_watch.h"
#include "model/tool_dialects/parts.h"

namespace tandem::model {

class JsonCallScanner : public CallScanner {
 public:
  explicit JsonCallScanner(std::initializer_list<std::string_view> keys) : keys_(keys) {}

 protected:
  // Where the value at `begin` ends.
  std::optional<size_t> watch(std::string_view text, size_t begin) {
    if (!object_) object_.emplace(begin);
    const auto end = object_->advance(text);
    if (text[begin] != '{') return end;
    if (!name_) name_ = object_->string_of(text, "name");
    if (name_) name_ = std::string(unquoted(*name_));
    if (name_ && name_->empty()) name_.reset();
    for (const auto key : keys_) {
      const auto arguments = object_->object_of(text, key);
      if (arguments.size() > arguments_.size()) arguments_.append(arguments.substr(arguments_.size()));
    }
    return end;
  }

 private:
  std::vector<std::string_view> keys_;
  std::optional<ObjectWatch> object_;
};

}  // namespace tandem::model
