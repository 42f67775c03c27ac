#include "serve/lookup_requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api_error.h"
#include "serve/request_reader.h"

namespace tandem::serve {
namespace {

using wire::HttpReply;
using wire::HttpResponse;

constexpr std::string_view kEmbeddings = "/v1/embeddings";
constexpr std::string_view kEmbeddingNeeds[] = {"model", "input"};

HttpResponse response_of_lookup(const Result<Json>& answer, const Fields& fields) {
  if (answer) return json_response(200, *answer);
  return error_response(http_status_of(answer.error()), answer.error().to_string(), fields.param());
}

}  // namespace

LookupRequests::LookupRequests(const ModelSet& models, WorkQueue& queue) : models_(models), queue_(queue) {
  for (const Lookup& lookup : {tokenize_lookup(), detokenize_lookup(), count_tokens_lookup()})
    readings_.push_back({lookup, FieldTable(lookup.fields)});
}

bool LookupRequests::has(std::string_view path) const {
  return path == kEmbeddings ||
         std::ranges::any_of(readings_, [&](const Reading& reading) { return reading.lookup.path == path; });
}

std::vector<DescribedPath> LookupRequests::described() const {
  std::vector<DescribedPath> paths;
  for (const auto& [lookup, table] : readings_)
    paths.push_back({lookup.path, "post", lookup.summary, &table, lookup.required});
  paths.push_back({kEmbeddings, "post", "Vectors of texts", &embedding_fields_, kEmbeddingNeeds});
  return paths;
}

void LookupRequests::answer(wire::HttpRequest request, std::shared_ptr<const KeyTerms> key, const HttpReply& reply) {
  for (const Reading& reading : readings_) {
    if (reading.lookup.path == request.path) return look_up(reading, std::move(request.body), std::move(key), reply);
  }
  embed(std::move(request.body), std::move(key), reply);
}

void LookupRequests::compute(std::function<HttpResponse()> work, const HttpReply& reply) {
  const bool taken = queue_.submit([reply, work = std::move(work)]() -> WorkQueue::Completion {
    auto response = std::make_shared<HttpResponse>(work());
    return [reply, response] { reply(std::move(*response)); };
  });
  if (!taken) reply(error_response(429, "too many requests wait to be read; try again later"));
}

void LookupRequests::look_up(const Reading& reading, std::string body, std::shared_ptr<const KeyTerms> key,
                             const HttpReply& reply) {
  compute(
      [this, &reading, key = std::move(key), body = std::move(body)] {
        Fields fields;
        if (const Status status = read_fields(fields, reading.table, reading.lookup.required, body); !status.ok())
          return error_response(400, status.to_string(), fields.param());
        const auto lane = models_.choose(fields.text("model"), "", Version::kCurrent).lane;
        if (!lane) return models_.unknown(fields.text("model"));
        const std::string name = lane->settings().names.front();
        const std::string asked = fields.text("model");
        if (auto refusal = refusal_of_model(*key, asked.empty() ? name : asked)) return std::move(*refusal);
        return response_of_lookup(shielded([&] { return reading.lookup.answer(fields, lane->view(name)); }), fields);
      },
      reply);
}

void LookupRequests::embed(std::string body, std::shared_ptr<const KeyTerms> key, const HttpReply& reply) {
  if (!models_.embedder()) {
    return reply(
        error_response(404, "this server has no embedding model; start it with --embedding-model DIR", "model"));
  }
  compute(
      [this, key = std::move(key), body = std::move(body)] {
        Fields fields;
        if (const Status status = read_fields(fields, embedding_fields_, kEmbeddingNeeds, body); !status.ok())
          return error_response(400, status.to_string(), fields.param());
        if (fields.text("model") != models_.embedder()->name()) {
          return error_response(404,
                                fmt::format("there is no embedding model \"{}\"; there is {}",
                                            fields.text("model").substr(0, 200), models_.embedder()->name()),
                                "model");
        }
        if (auto refusal = refusal_of_model(*key, fields.text("model"))) return std::move(*refusal);
        return response_of_lookup(shielded([&] { return models_.embedder()->answer(fields); }), fields);
      },
      reply);
}

}  // namespace tandem::serve
