#include "tests/cli/corrupting_proxy.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tandem {

namespace {

sockaddr_un address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

}  // namespace

void FrameCorrupter::pass(std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const auto skip = [&](uint64_t& of) {
      const uint64_t step = std::min<uint64_t>(of, bytes.size() - at);
      of -= step;
      at += step;
    };
    if (greeting_ > 0) {
      skip(greeting_);
    } else if (body_ > 0) {
      const uint64_t here = std::min<uint64_t>(body_, bytes.size() - at);
      if (hit_in_ < here) {
        bytes[at + hit_in_] ^= 0x10;
        hit_in_ = UINT64_MAX;
      } else if (hit_in_ != UINT64_MAX) {
        hit_in_ -= here;
      }
      skip(body_);
    } else {
      head_.push_back(bytes[at++]);
      const bool is_last = !(head_[0] & 1), is_long = head_[0] & 2, is_command = head_[0] & 4;
      if (head_.size() < (is_long ? 9u : 2u)) continue;
      for (size_t i = 1; i < head_.size(); ++i) body_ = body_ << 8 | static_cast<unsigned char>(head_[i]);
      head_.clear();
      if (is_command) continue;
      if (!is_hit_ && body_ >= smallest_ && left_ > 0) {
        --left_;
        hit_in_ = body_ / 2;
        is_hit_ = true;
      }
      if (is_last) is_hit_ = false;
    }
  }
}

CorruptingProxy::CorruptingProxy(fs::path socket, Hits from_role, Hits to_role)
    : socket_(std::move(socket)),
      real_(socket_.string() + ".r"),
      from_role_(from_role),
      to_role_(to_role),
      left_from_role_(from_role.count),
      left_to_role_(to_role.count) {
  fs::rename(socket_, real_);
  listener_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = address_of(socket_);
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener_.get(), 8), 0);
  accepting_ = std::thread([this] {
    while (!stop_) {
      pollfd wait = {listener_.get(), POLLIN, 0};
      if (::poll(&wait, 1, 100) <= 0) continue;
      const int client = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (client >= 0) connections_.emplace_back([this, client] { serve(client); });
    }
  });
}

CorruptingProxy::~CorruptingProxy() {
  stop_ = true;
  accepting_.join();
  for (auto& connection : connections_) connection.join();
}

void CorruptingProxy::serve(int fd) {
  FileDescriptor client(fd), role(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = address_of(real_);
  if (::connect(role.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  FrameCorrupter from_role(from_role_.smallest, left_from_role_), to_role(to_role_.smallest, left_to_role_);
  std::string bytes;
  while (!stop_) {
    pollfd wait[] = {{client.get(), POLLIN, 0}, {role.get(), POLLIN, 0}};
    if (::poll(wait, 2, 100) <= 0) continue;
    for (const int side : {0, 1}) {
      if (!wait[side].revents) continue;
      bytes.resize(1 << 16);
      const ssize_t size = ::read(wait[side].fd, bytes.data(), bytes.size());
      if (size <= 0) return;
      bytes.resize(static_cast<size_t>(size));
      (side == 0 ? to_role : from_role).pass(bytes);
      for (std::string_view left = bytes; !left.empty();) {
        const ssize_t sent = ::send(wait[1 - side].fd, left.data(), left.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        left.remove_prefix(static_cast<size_t>(sent));
      }
    }
  }
}

}  // namespace tandem
