// Says on standard error whose function it was where the process crashes within one. Private to trainer/torch/plugin/.
//
// Thread safety: each thread has at most one notice at a time; the crash of a thread without one is not commented.
#pragma once

namespace tandem::torch_plugin {

class CrashNotice {
 public:
  // `file` outlives the notice.
  explicit CrashNotice(const char* file);
  ~CrashNotice();
  CrashNotice(const CrashNotice&) = delete;
  CrashNotice& operator=(const CrashNotice&) = delete;
};

}  // namespace tandem::torch_plugin
