// Sandboxes in which codebase_search can be called: those of another backend, with that one call answered here.
//
// The sandbox goes on to run every other tool; of its files the search learns what the sandbox says. Where a list of
// tools does not name codebase_search it does not exist, as with all others.
#pragma once

#include "envs/sandbox/sandbox.h"
#include "envs/search/code_searcher.h"

namespace tandem::envs {

class SearchingBackend final : public SandboxBackend {
 public:
  // Both outlive it and its sandboxes.
  SearchingBackend(SandboxBackend& backend, CodeSearcher& searcher) : backend_(backend), searcher_(searcher) {}

  // A spec without tools offers all of them, codebase_search among them.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) override;

 private:
  SandboxBackend& backend_;
  CodeSearcher& searcher_;
};

}  // namespace tandem::envs
