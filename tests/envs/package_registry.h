// A registry of packages that a test serves: what lies at each path, and how often each was asked for.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "envs/packages/package_digest.h"
#include "envs/tools/process.h"
#include "tests/envs/scratch.h"
#include "wire/http_server.h"

namespace tandem::envs {

class PackageRegistry {
 public:
  PackageRegistry() {
    auto server = wire::HttpServer::listen("127.0.0.1", 0, {});
    if (!server) abort();
    server_.emplace(std::move(*server));
    port_ = server_->port();
    thread_ = std::thread([this] {
      (void)server_
          ->serve({.answer = [this](auto request, auto reply) { answer(request, reply); },
                   .tick =
                       [this] {
                         if (stop_) held_.clear();
                       }},
                  stop_)
          .ok();
      held_.clear();
    });
  }
  ~PackageRegistry() { stop(); }
  PackageRegistry(const PackageRegistry&) = delete;

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& path = "/") const { return "http://" + host() + path; }

  void put(const std::string& path, std::string body, std::string type = "application/octet-stream") {
    std::lock_guard lock(mutex_);
    files_[path] = {200, {{"Content-Type", std::move(type)}}, std::move(body)};
  }
  void redirect(const std::string& path, const std::string& to) {
    std::lock_guard lock(mutex_);
    files_[path] = {302, {{"Location", to}}, ""};
  }
  void fail_with(const std::string& path, int status) {
    std::lock_guard lock(mutex_);
    files_[path] = {status, {}, "no"};
  }
  // It is asked, and never answers.
  void hold(const std::string& path) {
    std::lock_guard lock(mutex_);
    held_paths_.insert(path);
  }
  int asked(const std::string& path) {
    std::lock_guard lock(mutex_);
    return asked_[path];
  }
  int asked() {
    std::lock_guard lock(mutex_);
    int all = 0;
    for (const auto& [path, count] : asked_) all += count;
    return all;
  }
  std::set<std::string> authorizations() {
    std::lock_guard lock(mutex_);
    return authorizations_;
  }

  // A wheel of one module, which says its version.
  static std::string wheel(const std::string& name, const std::string& version, size_t filling = 0) {
    return made_by_python(
        "import io, sys, zipfile\n"
        "name, version, filling = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
        "out = io.BytesIO(); z = zipfile.ZipFile(out, 'w')\n"
        "def add(path, text): z.writestr(zipfile.ZipInfo(path), text)\n"
        "info = name + '-' + version + '.dist-info/'\n"
        "add(name + '.py', 'version = ' + repr(version) + '\\n')\n"
        "if filling: add(name + '_filling.txt', 'x' * filling)\n"
        "add(info + 'METADATA', 'Metadata-Version: 2.1\\nName: ' + name + '\\nVersion: ' + version + '\\n')\n"
        "add(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "add(info + 'RECORD', '')\n"
        "z.close(); sys.stdout.write(out.getvalue().hex())\n",
        {name, version, std::to_string(filling)});
  }
  static std::string archive_of_npm(const std::string& name, const std::string& version) {
    return made_by_python(
        "import io, json, sys, tarfile, gzip\n"
        "name, version = sys.argv[1:]\n"
        "raw = io.BytesIO(); t = tarfile.open(fileobj=raw, mode='w')\n"
        "def add(path, text):\n"
        "    i = tarfile.TarInfo(path); i.size = len(text); i.mode = 0o644; t.addfile(i, io.BytesIO(text.encode()))\n"
        "add('package/package.json', json.dumps({'name': name, 'version': version, 'main': 'index.js'}))\n"
        "add('package/index.js', 'module.exports = ' + json.dumps(version))\n"
        "t.close(); sys.stdout.write(gzip.compress(raw.getvalue(), mtime=0).hex())\n",
        {name, version});
  }

  struct Upload {
    std::string version, uploaded, wheel;
    std::string url = {};     // empty: where it is
    std::string digest = {};  // empty: the right one
  };
  // A project of a simple index below /simple/, in JSON.
  void put_project(const std::string& name, const std::vector<Upload>& uploads) {
    Json files = Json::array();
    for (const auto& one : uploads) {
      const auto file = name + "-" + one.version + "-py3-none-any.whl";
      put("/files/" + file, one.wheel);
      Json entry = {{"filename", file},
                    {"url", one.url.empty() ? url("/files/" + file) : one.url},
                    {"hashes", Json::object({{"sha256", one.digest.empty() ? sha256_of(one.wheel) : one.digest}})}};
      if (!one.uploaded.empty()) entry["upload-time"] = one.uploaded;
      files.push_back(std::move(entry));
    }
    put("/simple/" + name + "/",
        dump_json({{"meta", Json::object({{"api-version", "1.1"}})}, {"name", name}, {"files", std::move(files)}}),
        "application/vnd.pypi.simple.v1+json");
  }
  void put_npm(const std::string& name, const std::string& version, const std::string& archive,
               const std::string& uploaded = "2024-01-01T00:00:00.000Z") {
    unsigned char hash[crypto_hash_sha512_BYTES];
    crypto_hash_sha512(hash, reinterpret_cast<const unsigned char*>(archive.data()), archive.size());
    char base64[sodium_base64_ENCODED_LEN(sizeof hash, sodium_base64_VARIANT_ORIGINAL)];
    sodium_bin2base64(base64, sizeof base64, hash, sizeof hash, sodium_base64_VARIANT_ORIGINAL);
    const auto file = name.substr(name.find('/') + 1) + "-" + version + ".tgz";
    put("/npm/" + name + "/-/" + file, archive);
    Json manifest = {{"name", name},
                     {"version", version},
                     {"dist", Json::object({{"tarball", url("/npm/" + name + "/-/" + file)},
                                            {"integrity", std::string("sha512-") + base64}})}};
    Json document = {{"name", name},
                     {"dist-tags", Json::object({{"latest", version}})},
                     {"versions", Json::object({{version, std::move(manifest)}})},
                     {"time", Json::object({{version, uploaded}})}};
    auto place = "/npm/" + name;
    if (name.starts_with('@')) place.replace(place.rfind('/'), 1, "%2f");
    put(place, dump_json(document), "application/json");
  }

 private:
  static std::string made_by_python(const std::string& program, const std::vector<std::string>& arguments) {
    ProcessSpec spec{.argv = {find_program("python3"), "-c", program}, .directory = "/", .output_limit = 64 << 20};
    spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
    const auto made = run_process(spec);
    EXPECT_TRUE(made && made->exit_code == 0) << (made ? made->output : made.error().message());
    std::string bytes;
    for (size_t i = 0; made && i + 1 < made->output.size(); i += 2)
      bytes += static_cast<char>(std::stoi(made->output.substr(i, 2), nullptr, 16));
    return bytes;
  }

  void answer(const wire::HttpRequest& request, const wire::HttpReply& reply) {
    std::lock_guard lock(mutex_);
    ++asked_[request.path];
    if (const auto said = request.header("authorization"); !said.empty()) authorizations_.emplace(said);
    if (held_paths_.contains(request.path)) {
      held_.push_back(reply);
      return;
    }
    const auto found = files_.find(request.path);
    if (found == files_.end()) return reply({.status = 404, .headers = {}, .body = "not here"});
    const auto& [status, headers, body] = found->second;
    reply({.status = status, .headers = headers, .body = body});
  }

  struct Served {
    int status = 200;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
  };
  std::optional<wire::HttpServer> server_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::map<std::string, Served> files_;
  std::set<std::string> held_paths_, authorizations_;
  std::map<std::string, int> asked_;
  std::vector<wire::HttpReply> held_;
  std::thread thread_;
};

}  // namespace tandem::envs
