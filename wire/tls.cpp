#include "wire/tls.h"

#include <boost/system/error_code.hpp>

#include "wire/tls_pump.h"

namespace tandem::wire {

using boost::asio::ssl::context_base;
using boost::system::error_code;

Result<std::shared_ptr<Tls>> Tls::open(const fs::path& certificate, const fs::path& key) {
  std::shared_ptr<Tls> tls(new Tls(certificate, key));
  TRY(tls->read());
  return tls;
}

Status Tls::read() {
  std::error_code file_error;
  const auto certificate_changed = fs::last_write_time(certificate_, file_error);
  const auto key_changed = fs::last_write_time(key_, file_error);
  auto context = std::make_shared<TlsContext>();
  error_code error;
  context->ssl.set_options(context_base::default_workarounds | context_base::no_tlsv1 | context_base::no_tlsv1_1,
                           error);
  if (error) return Status::internal("TLS cannot be set up: " + error.message());
  // Here and not in OpenSSL's words where a file is not there.
  TRY(read_file(certificate_, uint64_t{1} << 20));
  TRY(read_file(key_, uint64_t{1} << 20));
  // OpenSSL would ask for it on the terminal, and the server would stand.
  const auto locked = std::make_shared<bool>(false);
  context->ssl.set_password_callback(
      [locked](size_t, context_base::password_purpose) {
        *locked = true;
        return std::string();
      },
      error);
  context->ssl.use_certificate_chain_file(certificate_.string(), error);
  if (error) return Status::invalid("is no chain of certificates in PEM: " + error.message()).at(certificate_.string());
  context->ssl.use_private_key_file(key_.string(), context_base::pem, error);
  if (*locked) return Status::invalid("has a passphrase; the server takes a key without one").at(key_.string());
  if (error)
    return Status::invalid("is no private key in PEM of that certificate: " + error.message()).at(key_.string());
  certificate_changed_ = certificate_changed;
  key_changed_ = key_changed;
  context_ = std::move(context);
  return {};
}

Result<bool> Tls::refresh(bool surely) {
  std::error_code error;
  const auto certificate_changed = fs::last_write_time(certificate_, error);
  const auto key_changed = fs::last_write_time(key_, error);
  if (!surely && (error || (certificate_changed == certificate_changed_ && key_changed == key_changed_))) return false;
  // Said once for each change.
  certificate_changed_ = certificate_changed;
  key_changed_ = key_changed;
  TRY(read());
  return true;
}

}  // namespace tandem::wire
