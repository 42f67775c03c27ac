#include "weights_sync/carrier.h"

namespace tandem::weights_sync {

void write_manifest(const Manifest& manifest, wire::WeightsManifest::Builder out) {
  out.setVersion(manifest.version);
  out.setBase(manifest.base);
  out.setFormat(manifest.format);
  out.setBytes(manifest.bytes);
  out.setChunkBytes(manifest.chunk_bytes);
  auto digests = out.initDigests(static_cast<unsigned>(manifest.digests.size()));
  for (unsigned i = 0; i < digests.size(); ++i) {
    digests[i].setLow(manifest.digests[i].low);
    digests[i].setHigh(manifest.digests[i].high);
  }
}

Result<Manifest> read_manifest(wire::WeightsManifest::Reader in) {
  Manifest manifest{.version = in.getVersion(),
                    .base = in.getBase(),
                    .format = in.getFormat(),
                    .bytes = in.getBytes(),
                    .chunk_bytes = in.getChunkBytes(),
                    .digests = {}};
  for (const auto digest : in.getDigests()) manifest.digests.push_back({digest.getLow(), digest.getHigh()});
  return manifest;
}

}  // namespace tandem::weights_sync
