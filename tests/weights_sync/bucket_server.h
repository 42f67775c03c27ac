// A bucket over HTTP, with faults on purpose: objects in memory, and requests whose signature is not that of its key
// are refused. The signature's own oracle is botocore (aws_signature_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "weights_sync/aws_signature.h"
#include "wire/http_server.h"

namespace tandem::weights_sync {

class BucketServer {
 public:
  BucketServer() : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{16} << 20})) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      reply(answer(request));
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
    ::setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "a secret", 1);
  }
  ~BucketServer() {
    stop_ = true;
    thread_.join();
    ::unsetenv("AWS_ACCESS_KEY_ID");
    ::unsetenv("AWS_SECRET_ACCESS_KEY");
  }

  std::string url() const { return "http://" + host(); }
  std::map<std::string, std::string> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  // Answered to all requests from now on, in place of what was asked for; 0: nothing is wrong.
  std::atomic<int> status = 0;

 private:
  std::string host() const { return "127.0.0.1:" + std::to_string(server_.port()); }

  bool is_signed(const wire::HttpRequest& request) const {
    const std::string time(request.header("x-amz-date"));
    std::tm at{};
    if (::strptime(time.c_str(), "%Y%m%dT%H%M%SZ", &at) == nullptr) return false;
    const auto expected = aws_signature({request.method, host(), request.path, request.body, "us-east-1"},
                                        {"AKTEST", "a secret"}, ::timegm(&at));
    return request.header("authorization") == expected.back().second;
  }

  wire::HttpResponse answer(const wire::HttpRequest& request) {
    const auto error = [](int status, const std::string& code) -> wire::HttpResponse {
      return {status,
              {{"Content-Type", "application/xml"}},
              "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code></Error>"};
    };
    const std::lock_guard lock(mutex_);
    if (status != 0) return error(status, "SlowDown");
    if (!is_signed(request)) return error(403, "SignatureDoesNotMatch");
    if (!request.path.starts_with("/bucket/")) return error(404, "NoSuchBucket");
    if (request.method == "PUT") {
      objects_[request.path] = request.body;
      return {200, {}, ""};
    }
    if (request.method == "DELETE") {
      objects_.erase(request.path);
      return {204, {}, ""};
    }
    const auto found = objects_.find(request.path);
    if (found == objects_.end()) return error(404, "NoSuchKey");
    return {200, {{"Content-Type", "binary/octet-stream"}}, found->second};
  }

  wire::HttpServer server_;
  wire::HttpHandler handler_;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  std::thread thread_;
};

}  // namespace tandem::weights_sync
