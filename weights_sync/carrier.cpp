#include "weights_sync/carrier.h"

namespace tandem::weights_sync {

namespace {

Digest read_digest(wire::ChunkDigest::Reader in) { return {in.getLow(), in.getHigh()}; }
void write_digest(const Digest& digest, wire::ChunkDigest::Builder out) {
  out.setLow(digest.low);
  out.setHigh(digest.high);
}
void write_digests(const std::vector<Digest>& digests, capnp::List<wire::ChunkDigest>::Builder out) {
  for (unsigned i = 0; i < out.size(); ++i) write_digest(digests[i], out[i]);
}

}  // namespace

void write_manifest(const Manifest& manifest, wire::WeightsManifest::Builder out) {
  out.setVersion(manifest.version);
  out.setBase(manifest.base);
  out.setFormat(manifest.format);
  out.setBytes(manifest.bytes);
  out.setChunkBytes(manifest.chunk_bytes);
  write_digests(manifest.digests, out.initDigests(static_cast<unsigned>(manifest.digests.size())));
  write_digest(manifest.base_digest, out.initBaseDigest());
  write_digests(manifest.parts, out.initParts(static_cast<unsigned>(manifest.parts.size())));
  out.setNewest(manifest.newest);
}

Result<Manifest> read_manifest(wire::WeightsManifest::Reader in) {
  Manifest manifest{.version = in.getVersion(),
                    .base = in.getBase(),
                    .format = in.getFormat(),
                    .bytes = in.getBytes(),
                    .chunk_bytes = in.getChunkBytes(),
                    .digests = {},
                    .base_digest = read_digest(in.getBaseDigest()),
                    .parts = {},
                    .newest = in.getNewest()};
  for (const auto digest : in.getDigests()) manifest.digests.push_back(read_digest(digest));
  for (const auto digest : in.getParts()) manifest.parts.push_back(read_digest(digest));
  return manifest;
}

void write_wanted(const Wanted& wanted, wire::WeightsWanted::Builder out) {
  out.setHolds(wanted.holds);
  out.setVersion(wanted.version);
  write_digest(wanted.digest, out.initDigest());
}

Wanted read_wanted(wire::WeightsWanted::Reader in) {
  return {.holds = in.getHolds(), .version = in.getVersion(), .digest = read_digest(in.getDigest())};
}

void announce(const Handout& handout, wire::Socket& socket, const std::string& listener) {
  const auto manifest = handout.next_for(listener);
  if (!manifest) return;
  wire::Outgoing message;
  write_manifest(*manifest, message.body().initWeightsManifest());
  // One who is gone asks again when it is back.
  (void)socket.send(listener, message);
}

void announce(const Handout& handout, wire::Socket& socket) {
  for (const auto& listener : handout.listeners()) announce(handout, socket, listener);
}

std::optional<size_t> answer(Handout& handout, wire::Socket& socket, const wire::Incoming& message, Time now) {
  const auto body = message.body();
  if (body.isWeightsWanted()) {
    handout.wants(message.sender(), read_wanted(body.getWeightsWanted()));
    announce(handout, socket, message.sender());
    return 0;
  }
  if (!body.isChunkRequest()) return std::nullopt;
  const auto request = body.getChunkRequest();
  const auto bytes = handout.chunk(request.getBase(), request.getVersion(), request.getIndex(), now);
  if (!bytes) {
    announce(handout, socket, message.sender());
    return 0;
  }
  wire::Outgoing chunk(message.id());
  auto out = chunk.body().initChunk();
  out.setVersion(request.getVersion());
  out.setIndex(request.getIndex());
  out.setBase(request.getBase());
  chunk.add_bulk(*bytes);
  (void)socket.send(message.sender(), chunk);
  return bytes->size();
}

}  // namespace tandem::weights_sync
