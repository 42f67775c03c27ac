// The config of `tandem serve`, under "serve" (docs/serving.md).
//
// Values: copy. A Schema binds the members of one object, which outlives it.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "base/config.h"

namespace tandem::cli {

struct ServeConfig {
  std::vector<std::string> models, candidate_folders, adapters, draft_models, upstreams, cors_origins;
  std::string upstream_book;
  double upstream_wait_seconds = 30, upstream_first_byte_seconds = 300, upstream_silence_seconds = 60;
  double upstream_answer_seconds = 3600, upstream_probe_seconds = 5;
  int max_adapters = 64, max_adapter_rank = 256, adapter_memory_mb = 1024;
  bool salt_by_key = false, routes = false;
  int traces = 256;
  double trace_slower_than = 1;
  std::string promoted;
  std::string keys, usage_log, tls_certificate, tls_key;
  double address_requests_per_minute = 0;
  int stored_responses_mb = 64;
  std::string host = "127.0.0.1", api_key_file, admin_key_file, embedding_model, device = "cpu", speculation = "ngram";
  int port = 8000, slots = 16, max_tokens = 0, queue = 1024, connections = 8192;
  std::vector<std::string> longest_wait = {"autocomplete=5"};
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  double drain_seconds = 30;
  // A process for each model.
  bool isolate = false;
  int memory_mb = 0, max_restarts = 5;
  double silence_seconds = 30, start_seconds = 600, restart_window_seconds = 600;
  int slow_start = 0;
  double slow_start_seconds = 2;
  // For such a process itself.
  double stall_seconds = 0;
  std::string front_key_file;

  Schema schema();
};

}  // namespace tandem::cli
