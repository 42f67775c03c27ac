// Converts exceptions to a text in the caller's buffer. Private to trainer/torch/plugin/.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tandem::torch_plugin {

// The first lines of what LibTorch says are for people, its stack of C++ frames is not.
inline std::string words_of(const std::exception& error) {
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error)) {
    std::string text = of_torch->what_without_backtrace();
    return text.substr(0, text.find("\nException raised from"));
  }
  return error.what() != nullptr ? error.what() : "an exception without words";
}

inline void write_error(const std::string& words, char* error, size_t size) {
  if (size == 0) return;
  const size_t length = std::min(words.size(), size - 1);
  std::memcpy(error, words.data(), length);
  error[length] = '\0';
}

// Runs `work`; what it throws is written down, and `failed` is the answer.
template <typename Work, typename Answer>
Answer answer_or(Answer failed, char* error, size_t error_size, const Work& work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    write_error(words_of(thrown), error, error_size);
  } catch (...) {
    write_error("threw what is no std::exception", error, error_size);
  }
  return failed;
}

}  // namespace tandem::torch_plugin

#define TANDEM_TORCH_EXPORT __attribute__((visibility("default")))
