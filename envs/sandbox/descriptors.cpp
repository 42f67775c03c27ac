#include "envs/sandbox/descriptors.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace tandem::envs {
namespace {

struct DescriptorsPlace {
  FileDescriptor socket;
  sockaddr_un address{};
  const sockaddr* any() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Result<DescriptorsPlace> socket_for(const std::string& path) {
  DescriptorsPlace place;
  place.address.sun_family = AF_UNIX;
  if (path.size() >= sizeof place.address.sun_path)
    return fail(Status::invalid(path + " is too long for the path of a socket"));
  path.copy(place.address.sun_path, path.size());
  place.socket = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!place.socket) return fail(Status::from_errno("socket", errno));
  return place;
}

}  // namespace

Result<FileDescriptor> listen_at(const std::string& path) {
  auto place = TRY(socket_for(path));
  if (bind(place.socket.get(), place.any(), sizeof place.address) != 0 || chmod(path.c_str(), 0666) != 0 ||
      listen(place.socket.get(), 4) != 0)
    return fail(Status::from_errno(path, errno));
  return std::move(place.socket);
}

Result<FileDescriptor> connect_to(const std::string& path) {
  auto place = TRY(socket_for(path));
  if (connect(place.socket.get(), place.any(), sizeof place.address) != 0) return fail(Status::from_errno(path, errno));
  return std::move(place.socket);
}

Status send_descriptors(int socket, std::string_view text, std::initializer_list<int> descriptors) {
  return send_descriptors(socket, text, std::span(descriptors.begin(), descriptors.size()));
}

Status send_descriptors(int socket, std::string_view text, std::span<const int> all) {
  std::vector<int> descriptors;
  for (const int descriptor : all) {
    if (descriptor >= 0) descriptors.push_back(descriptor);
  }
  if (descriptors.size() > kMostDescriptors) return Status::internal("too many descriptors for a message");
  iovec data = {const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptors.size() > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) return Status::from_errno("spawner", errno);
  return {};
}

Received receive(int socket, size_t limit) {
  Received received;
  received.text.resize(limit);
  iovec data = {received.text.data(), limit};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = -1;
  while ((size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  received.text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  if (size <= 0) return received;
  received.cut = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  return received;
}

std::string written_to(const FileDescriptor& file) {
  std::string text(1000, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  return std::string(trim(std::string_view(text).substr(0, size > 0 ? static_cast<size_t>(size) : 0)));
}

}  // namespace tandem::envs
