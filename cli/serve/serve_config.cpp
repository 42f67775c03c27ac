#include "cli/serve/serve_config.h"

namespace tandem::cli {

Schema ServeConfig::schema() {
  Schema schema;
  schema.add("serve.models", models, "Model directories, each as DIR or NAME=DIR; the name is what clients ask for")
      .add("serve.upstreams", upstreams, "Servers, each as URL or NAME=URL, that answer in place of models of its own")
      .add("serve.upstream_book", upstream_book,
           "Book of upstreams in place of that: YAML, a name for each, its url, models, key and limits "
           "(docs/serving.md)")
      .add("serve.upstream_wait_seconds", upstream_wait_seconds,
           "How long a request waits where none of its upstreams can be asked", 0, 3600)
      .add("serve.upstream_first_byte_seconds", upstream_first_byte_seconds,
           "How long an upstream has to begin an answer", 0.1, 86400)
      .add("serve.upstream_silence_seconds", upstream_silence_seconds, "How long it may be silent within an answer",
           0.1, 86400)
      .add("serve.upstream_answer_seconds", upstream_answer_seconds, "How long an answer may take in all", 1, 604800)
      .add("serve.upstream_probe_seconds", upstream_probe_seconds,
           "How often an upstream is asked for its models where nothing else is heard of it", 0.1, 3600)
      .add("serve.host", host, "Address to listen on; off loopback it needs keys")
      .add("serve.port", port, "Port; 0 takes a free one", 0, 65535)
      .add("serve.api_key_file", api_key_file, "File with a key on each line; it is read again when it changes")
      .add("serve.tls_certificate", tls_certificate,
           "Chain of certificates, PEM, for https; it is read again when it changes")
      .add("serve.tls_key", tls_key, "Its private key, PEM")
      .add("serve.keys", keys,
           "Book of keys in place of it: YAML, a name for each key, its sha256, and what it may (docs/serving.md)")
      .add("serve.address_requests_per_minute", address_requests_per_minute,
           "Requests that may come from one address; 0: no limit", 0, 1e9)
      .add("serve.usage_log", usage_log,
           "File that gets a line of JSON for each request as it ends: key, tokens, seconds; empty: none")
      .add("serve.admin_key_file", admin_key_file,
           "File with a key on each line for admins, who may change the server while it runs, beside those of the "
           "book of keys")
      .add("serve.candidate_folders", candidate_folders,
           "Folders below which new versions of a model may lie that an admin tries and promotes, and LoRA adapters "
           "that an admin loads; none: nothing is promoted or loaded")
      .add("serve.adapters", adapters,
           "LoRA adapters, each as NAME=DIR, or NAME@MODEL=DIR where it is not for the first model; the name is what "
           "clients ask for as their model")
      .add("serve.max_adapters", max_adapters, "Adapters that are loaded at once, at most", 1, 1024)
      .add("serve.max_adapter_rank", max_adapter_rank, "Rank of an adapter, at most", 1, 4096)
      .add("serve.adapter_memory_mb", adapter_memory_mb, "Memory for the factors of all adapters together, at most", 1,
           1 << 20)
      .add("serve.promoted", promoted,
           "File that keeps what was promoted, so that the next start serves it; empty: it serves what models says")
      .add("serve.traces", traces, "Slow requests whose times are kept in memory for /traces, the last ones; 0: none",
           0, 100000)
      .add("serve.trace_slower_than", trace_slower_than, "Seconds from which a request is slow", 0, 86400)
      .add("serve.cors_origins", cors_origins,
           "Origins, such as https://app.example.com, whose pages may use the server from a browser; * is all. None: "
           "no page may")
      .add("serve.salt_by_key", salt_by_key,
           "What was computed of prompts is shared within a key alone, so that no key learns from times what others "
           "ask")
      .add("serve.routes", routes,
           "Record which experts tokens go to, of models that are mixtures of experts: requests to "
           "/inference/v1/generate "
           "may ask for them")
      .add("serve.stored_responses_mb", stored_responses_mb,
           "Memory for answers of /v1/responses that requests may go on from; the oldest go first. 0: none", 0, 1 << 20)
      .add("serve.embedding_model", embedding_model, "Directory of a sentence encoder for /v1/embeddings")
      .add("serve.slots", slots, "Answers of a model that are sampled at once", 1, 4096)
      .add("serve.max_tokens", max_tokens, "Most tokens of prompt and answer together; 0: the model's, at most 8192", 0,
           1 << 24)
      .add("serve.queue", queue,
           "Answers of a model that wait for a slot, at most, of a class and of those above it; more are told to come "
           "again",
           1, 1000000)
      .add("serve.longest_wait", longest_wait,
           "Seconds that answers of a class may wait for a slot, each as CLASS=SECONDS; what would wait for longer is "
           "told at once to come again. 0, and classes that are not named: any")
      .add("serve.connections", connections, "Connections that are open at once; more wait", 1, 1000000)
      .add("serve.device", device, "What computes: auto, cpu, cpu:avx2 and the like, cuda:0, cuda:0:tensor, emulated:0")
      .add("serve.speculation", speculation,
           "How tokens are guessed, so that one pass can give several. It changes no token", {"off", "ngram"})
      .add(
          "serve.draft_models", draft_models,
          "Smaller models with the tokenizer of a model, each as DIR, or NAME=DIR where it is not for the first model: "
          "they guess what comes next, which changes no token and saves passes where they are right")
      .add("serve.threads", threads, "Threads that compute, of each model", 1, 1024)
      .add("serve.drain_seconds", drain_seconds, "How long running answers have to end after SIGTERM", 0, 86400)
      .add("serve.isolate", isolate,
           "Each model in a process of its own, watched and started again: one that is lost costs the others nothing")
      .add("serve.memory_mb", memory_mb,
           "With isolate: memory of each process, without pages of files, above which it is ended and started again; "
           "0: no limit",
           0, 1 << 24)
      .add("serve.silence_seconds", silence_seconds,
           "With isolate: how long a process may give no sign, or be in one step, before it is ended and started again",
           1, 86400)
      .add("serve.start_seconds", start_seconds, "With isolate: how long a process has to load its model", 1, 86400)
      .add(
          "serve.max_restarts", max_restarts,
          "With isolate: restarts of a process within serve.restart_window_seconds; with one more its model has failed",
          0, 1000)
      .add("serve.restart_window_seconds", restart_window_seconds, "See serve.max_restarts", 1, 604800)
      .add("serve.slow_start", slow_start,
           "Requests at once that are taken on after the start, of a share of the users; doubled while the time to the "
           "first token holds, up to all slots. 0: all from the start",
           0, 1 << 20)
      .add("serve.slow_start_seconds", slow_start_seconds, "Between two such doublings, at least", 0.1, 3600)
      .add("serve.stall_seconds", stall_seconds,
           "Where an engine has been in one step for longer, /health is 503; 0: that is not looked at", 0, 86400)
      .add("serve.front_key_file", front_key_file,
           "File with the key of a gateway that may ask for others, whom it names in X-Tandem-Caller; it is a key of "
           "the server as well");
  return schema;
}

}  // namespace tandem::cli
