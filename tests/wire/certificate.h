// A certificate of a test's own for 127.0.0.1, and its key, as PEM files.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace tandem {

// Signed by itself, good for a day. `name`: of whom it says that it is.
inline void write_certificate(const std::filesystem::path& certificate, const std::filesystem::path& key,
                              const std::string& name) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pair(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x509(X509_new(), &X509_free);
  if (!pair || !x509) abort();
  X509_set_version(x509.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509.get()), 86400);
  X509_set_pubkey(x509.get(), pair.get());
  X509_NAME* const subject = X509_get_subject_name(x509.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(x509.get(), subject);
  const auto add = [&](int what, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
    if (extension == nullptr) abort();
    X509_add_ext(x509.get(), extension, -1);
    X509_EXTENSION_free(extension);
  };
  add(NID_subject_alt_name, "IP:127.0.0.1");
  add(NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(x509.get(), pair.get(), EVP_sha256());
  const auto write = [](const std::filesystem::path& path, const auto& put) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "w"), &std::fclose);
    if (!file || !put(file.get())) abort();
  };
  write(certificate, [&](FILE* file) { return PEM_write_X509(file, x509.get()); });
  write(key, [&](FILE* file) { return PEM_write_PrivateKey(file, pair.get(), nullptr, nullptr, 0, nullptr, nullptr); });
}

}  // namespace tandem
