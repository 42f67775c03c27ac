// The side of a standby that keeps the copy: which requests it carries out, which it has carried out already, which
// cannot be of any use. A pure machine: no sockets, files or clocks.
//
// Each process of the run has a stream, by its name. A higher life of one takes the place of the one before and begins
// with a survey; a request is carried out when its number is the next one.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem::standby {

class Streams {
 public:
  enum class Verdict : uint8_t {
    kApply,    // then applied() or failed()
    kAgain,    // it was carried out already, or one before it is missing: say how far it is
    kSurvey,   // a survey that was asked for again, before anything else: answer it again
    kUnknown,  // the stream has to begin another life
    kDrop,     // of a former life
  };
  Verdict judge(const std::string& stream, uint64_t life, uint64_t number, bool is_survey);

  void applied(const std::string& stream) { ++streams_[stream].next; }
  // Rejects later operations of this stream's life, since one has failed.
  void failed(const std::string& stream) { streams_[stream].next = 0; }
  // The last number that was carried out in its life.
  uint64_t done(const std::string& stream) const;

 private:
  struct Stream {
    uint64_t life = 0;
    uint64_t next = 0;  // 0: this life is over
  };
  std::map<std::string, Stream> streams_;
};

}  // namespace tandem::standby
