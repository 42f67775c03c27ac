#include "wire/http_transfers.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "wire/curl_request.h"

namespace tandem::wire {
namespace {

constexpr int kLongestPollMilliseconds = 250;  // between two looks at the deadlines
constexpr long kIdleConnections = 256;
constexpr size_t kMostHeaderBytes = size_t{64} << 10;

}  // namespace

class HttpTransfers::Loop {
 public:
  Loop(std::unique_ptr<CURLM, FreeMulti> multi, FileDescriptor wake, const Clock& clock)
      : multi_(std::move(multi)), wake_(std::move(wake)), clock_(clock) {
    curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, kIdleConnections);
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    stopping_ = true;
    curl_multi_wakeup(multi_.get());
    thread_.join();
  }

  void start(uint64_t number, TransferRequest request) {
    give({.number = number, .kind = Order::Kind::kStart, .request = std::move(request)});
  }
  void cancel(uint64_t number) {
    {
      const std::lock_guard lock(mutex_);
      news_.erase(number);
      forgotten_.push_back(number);
    }
    give({.number = number, .kind = Order::Kind::kCancel});
  }
  void hold(uint64_t number, bool held) {
    give({.number = number, .kind = held ? Order::Kind::kHold : Order::Kind::kRelease});
  }

  int wake_fd() const { return wake_.get(); }

  std::vector<TransferEvent> take_events() {
    uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
    std::vector<TransferEvent> events;
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [number, event] : news_) {
        full = full || event.bytes.size() >= kMostUntaken;
        events.push_back(std::move(event));
      }
      news_.clear();
    }
    if (full) give({.kind = Order::Kind::kLook});
    return events;
  }

 private:
  struct Order {
    enum class Kind : uint8_t { kStart, kCancel, kHold, kRelease, kLook };
    uint64_t number = 0;
    Kind kind = Kind::kLook;
    TransferRequest request = {};
  };
  // Its fields belong to the thread.
  struct Transfer {
    Loop* loop = nullptr;
    uint64_t number = 0;
    std::unique_ptr<CurlRequest> curl;
    Duration silence{};
    Time deadline{};  // of the next byte
    size_t room = 0;  // bytes that the answer may still have
    size_t header_bytes = 0;
    TransferHead head;
    bool begun = false;  // its head has been told
    bool held = false, paused = false;
    Status trouble;
  };

  void give(Order order) {
    {
      const std::lock_guard lock(mutex_);
      orders_.push_back(std::move(order));
    }
    curl_multi_wakeup(multi_.get());
  }

  void run() {
    while (!stopping_) {
      take_orders();
      int running = 0;
      curl_multi_perform(multi_.get(), &running);
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
        if (message->msg == CURLMSG_DONE) end(message->easy_handle, message->data.result);
      }
      end_late();
      curl_multi_poll(multi_.get(), nullptr, 0, kLongestPollMilliseconds, nullptr);
    }
    for (const auto& [number, transfer] : transfers_) curl_multi_remove_handle(multi_.get(), transfer->curl->easy());
    transfers_.clear();
  }

  void take_orders() {
    std::deque<Order> orders;
    {
      const std::lock_guard lock(mutex_);
      orders.swap(orders_);
    }
    for (Order& order : orders) {
      if (order.kind == Order::Kind::kStart) {
        begin(order.number, std::move(order.request));
        continue;
      }
      const auto found = transfers_.find(order.number);
      if (order.kind == Order::Kind::kCancel) {
        if (found != transfers_.end()) let_go(found);
        const std::lock_guard lock(mutex_);
        std::erase(forgotten_, order.number);
      } else if (found != transfers_.end()) {
        found->second->held = order.kind == Order::Kind::kHold;
      }
    }
    for (const auto& [number, transfer] : transfers_) resume(*transfer);
  }

  void begin(uint64_t number, TransferRequest request) {
    auto transfer = std::make_unique<Transfer>();
    transfer->loop = this;
    transfer->number = number;
    transfer->silence = request.silence;
    transfer->deadline = clock_.now() + request.first_byte;
    transfer->room = request.request.largest_answer;
    auto made = CurlRequest::create(std::move(request.request));
    if (!made) return tell_end(number, made.error(), false);
    transfer->curl = std::move(*made);
    CURL* const easy = transfer->curl->easy();
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer.get());
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer.get());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &take_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer.get());
    // One that has been idle for long may be closed over there by now.
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, 30L);
    curl_multi_add_handle(multi_.get(), easy);
    transfers_.emplace(number, std::move(transfer));
  }

  static size_t take_header(char* bytes, size_t one, size_t count, void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    const std::string_view line(bytes, one * count);
    transfer.header_bytes += line.size();
    if (transfer.header_bytes > kMostHeaderBytes) {
      transfer.trouble = Status::exhausted("the headers of the answer are too large");
      return 0;
    }
    const size_t colon = line.find(':');
    if (line.starts_with("HTTP/")) {
      transfer.head.headers.clear();  // those before it were of a 1xx answer
    } else if (colon != std::string_view::npos) {
      std::string name(line.substr(0, colon));
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      transfer.head.headers[std::move(name)] = std::string(trim(line.substr(colon + 1)));
    }
    return line.size();
  }

  static size_t take_bytes(char* bytes, size_t one, size_t count, void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    return transfer.loop->take(transfer, {bytes, one * count});
  }

  size_t take(Transfer& transfer, std::string_view bytes) {
    if (bytes.size() > transfer.room) {
      transfer.trouble = Status::exhausted("the answer is too large");
      return 0;
    }
    if (transfer.held || untaken(transfer.number) >= kMostUntaken) {
      transfer.paused = true;
      return CURL_WRITEFUNC_PAUSE;
    }
    transfer.room -= bytes.size();
    transfer.deadline = clock_.now() + transfer.silence;
    const bool first = begin_answer(transfer);
    tell(transfer.number, [&](TransferEvent& event) {
      if (first) event.head = transfer.head;
      event.bytes += bytes;
    });
    return bytes.size();
  }

  // True once, with the status in the head.
  static bool begin_answer(Transfer& transfer) {
    if (transfer.begun) return false;
    long status = 0;
    curl_easy_getinfo(transfer.curl->easy(), CURLINFO_RESPONSE_CODE, &status);
    transfer.head.status = static_cast<int>(status);
    return transfer.begun = true;
  }

  size_t untaken(uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = news_.find(number);
    return found == news_.end() ? 0 : found->second.bytes.size();
  }

  void resume(Transfer& transfer) {
    if (!transfer.paused || transfer.held || untaken(transfer.number) >= kMostUntaken) return;
    transfer.paused = false;
    transfer.deadline = clock_.now() + transfer.silence;
    curl_easy_pause(transfer.curl->easy(), CURLPAUSE_CONT);
  }

  void end(CURL* easy, CURLcode code) {
    Transfer* transfer = nullptr;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
    Status outcome = transfer->trouble.ok() ? transfer->curl->status_of(code) : transfer->trouble;
    const bool first = outcome.ok() && begin_answer(*transfer);
    const uint64_t number = transfer->number;
    if (first) tell(number, [&](TransferEvent& event) { event.head = transfer->head; });
    const bool connected = connected_of(easy);
    let_go(transfers_.find(number));
    tell_end(number, std::move(outcome), connected);
  }

  // One that nobody reads waits for its reader.
  void end_late() {
    const Time now = clock_.now();
    for (auto next = transfers_.begin(); next != transfers_.end();) {
      const auto one = next++;
      if (one->second->paused || now < one->second->deadline) continue;
      const uint64_t number = one->first;
      const bool begun = one->second->begun;
      const bool connected = connected_of(one->second->curl->easy());
      let_go(one);
      tell_end(number, Status::deadline(begun ? "the answer stopped coming" : "no answer began in time"), connected);
    }
  }

  using Transfers = std::map<uint64_t, std::unique_ptr<Transfer>>;
  void let_go(Transfers::iterator one) {
    curl_multi_remove_handle(multi_.get(), one->second->curl->easy());
    transfers_.erase(one);
  }

  static bool connected_of(CURL* easy) {
    curl_off_t microseconds = 0;
    curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &microseconds);
    return microseconds > 0;
  }

  void tell_end(uint64_t number, Status outcome, bool connected) {
    tell(number, [&](TransferEvent& event) {
      event.ended = true;
      event.connected = connected;
      event.outcome = std::move(outcome);
    });
  }

  template <typename Change>
  void tell(uint64_t number, const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      if (std::ranges::find(forgotten_, number) != forgotten_.end()) return;
      TransferEvent& event = news_[number];
      event.transfer = number;
      change(event);
    }
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }

  const std::unique_ptr<CURLM, FreeMulti> multi_;
  const FileDescriptor wake_;
  const Clock& clock_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // of the next three
  std::deque<Order> orders_;
  std::map<uint64_t, TransferEvent> news_;
  std::vector<uint64_t> forgotten_;  // cancelled, which the thread does not know yet
  Transfers transfers_;              // the thread's
  std::thread thread_;
};

HttpTransfers::HttpTransfers(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpTransfers::~HttpTransfers() = default;

Result<std::unique_ptr<HttpTransfers>> HttpTransfers::create(const Clock& clock) {
  if (!curl_is_ready()) return fail(Status::internal("curl does not start"));
  std::unique_ptr<CURLM, FreeMulti> multi(curl_multi_init());
  if (!multi) return fail(Status::exhausted("no memory for requests"));
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return fail(Status::from_errno("eventfd", errno));
  return std::unique_ptr<HttpTransfers>(
      new HttpTransfers(std::make_unique<Loop>(std::move(multi), std::move(wake), clock)));
}

uint64_t HttpTransfers::start(TransferRequest request) {
  loop_->start(++last_, std::move(request));
  return last_;
}
void HttpTransfers::cancel(uint64_t transfer) { loop_->cancel(transfer); }
void HttpTransfers::hold(uint64_t transfer, bool held) { loop_->hold(transfer, held); }
int HttpTransfers::wake_fd() const { return loop_->wake_fd(); }
std::vector<TransferEvent> HttpTransfers::take_events() { return loop_->take_events(); }

}  // namespace tandem::wire
