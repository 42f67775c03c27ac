// The HTTP and CONNECT proxy of sandboxes: connects to hosts of their allow lists and logs each request.
//
// A sandbox has no device but its own loopback. Its first process, before anything of a model is there, listens at a
// port of that and hands the listening socket out; what connects inside is accepted out here. So nothing inside holds a
// way to the host: no path, no socket, no name service. Names are resolved here, and the address that is connected to
// is the one that was checked.
//
// Ownership: a listener is its sandbox's and closes the way, connections included, when it goes; the proxy must outlive
// its doors. Thread safety: all of it. One thread accepts, each connection has one of its own; all end with the proxy,
// which may wait for a name service for as long as that takes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "envs/network/allow_list.h"
#include "envs/network/package_service.h"
#include "envs/network/use.h"

namespace tandem::envs {

struct ProxyLimits {
  size_t connections = 32;                      // of a sandbox at once; more are refused
  size_t all_connections = 512;                 // of all sandboxes
  uint64_t bytes = uint64_t{1} << 30;           // of a sandbox, both ways together, in all its life
  Duration head = std::chrono::seconds(10);     // in which a request must have come
  Duration connect = std::chrono::seconds(10);  // to the host
  Duration idle = std::chrono::seconds(60);     // without a byte either way
  Duration longest = std::chrono::minutes(10);  // of a connection
};

class NetworkProxy {
 public:
  // The addresses of a name; called from several threads.
  using Resolve = std::function<Result<std::vector<Address>>(const std::string& name)>;
  // Called for each request from several threads, for one that is refused before it is answered.
  using OnUse = OnNetworkUse;

  NetworkProxy();  // asks the name service of this machine
  NetworkProxy(const ProxyLimits& limits, Resolve resolve);
  ~NetworkProxy();

  struct Gate;
  class Listener {
   public:
    ~Listener();

   private:
    friend NetworkProxy;
    Listener(NetworkProxy& proxy, std::shared_ptr<Gate> gate) : proxy_(proxy), gate_(std::move(gate)) {}
    NetworkProxy& proxy_;
    const std::shared_ptr<Gate> gate_;
  };
  // Serves what connects to `listener`, a listening socket of a sandbox. Requests to the proxy itself are answered by
  // `packages`; null: they are refused.
  std::unique_ptr<Listener> open(FileDescriptor listener, AllowList list, OnUse on_use,
                                 std::shared_ptr<PackageService> packages = nullptr);

 private:
  struct Shared;
  const std::unique_ptr<Shared> shared_;
};

}  // namespace tandem::envs
