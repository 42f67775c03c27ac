// A client of the Model Context Protocol with its sandbox: carries out the decisions of its session.
//
// The sandbox is made for the first call and lasts as long as the client, with what its shell keeps. One that is lost
// fails the call that lost it; the next call begins in a new one. Calls run on the threads of a queue that several
// clients may share.
//
// Thread safety: none; everything on the thread that owns the queue. When it goes, the calls that are under way are
// cancelled, and its sandbox ends with the last of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>

#include "base/work_queue.h"
#include "envs/mcp_server/mcp_session.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// State shared by all clients of one server. The backend is the caller's and outlives them.
struct McpServing {
  SandboxBackend* backend = nullptr;
  SandboxSpec spec;
  std::string version;  // of the server
};

class McpPeer : public std::enable_shared_from_this<McpPeer> {
 public:
  using OnReply = std::function<void(McpReply)>;  // called once for each frame, perhaps before `receive` returns
  static std::shared_ptr<McpPeer> create(const McpServing& serving, WorkQueue& queue, OnReply on_reply);
  ~McpPeer();

  void receive(uint64_t exchange, std::string_view frame);
  bool initialized() const { return session_.initialized(); }
  bool busy() const { return session_.busy(); }

 private:
  class Workplace;
  McpPeer(const McpServing& serving, WorkQueue& queue, OnReply on_reply);
  void carry_out(std::vector<McpAction> actions);
  void start(McpCallStart start);

  McpSession session_;
  WorkQueue& queue_;
  const OnReply on_reply_;
  std::shared_ptr<Workplace> workplace_;
  std::map<uint64_t, std::stop_source> calls_;
};

}  // namespace tandem::envs
