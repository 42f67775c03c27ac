#include "dashboard/html.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/text.h"
#include "base/utf8.h"
#include "dashboard/page_assets.h"

namespace tandem::dashboard {

std::string escape(std::string_view raw) {
  const std::string text = replace_invalid_utf8(raw);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (const char c : escape_html(text)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0x7f)
      out += "\xe2\x90\xa1";
    else if (byte < 0x20 && c != '\n' && c != '\t')
      out += {'\xe2', '\x90', static_cast<char>(0x80 + byte)};  // U+2400 and on: pictures of controls
    else
      out += c;
  }
  return out;
}

std::string page(std::string_view title, std::string_view body, PageUpdates updates) {
  const bool served = updates == PageUpdates::kWhileServed;
  // Named by the whole content, so nothing within the content can have named it.
  const std::string nonce = digest_of(body).hex();
  std::string out = fmt::format("<!doctype html>\n<html lang=\"en\"{}>\n<head>\n<meta charset=\"utf-8\">\n",
                                served ? " data-live" : "");
  out += fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'nonce-{}'{}; base-uri 'none'; form-action 'none'\">\n",
      nonce, served ? "; connect-src 'self'" : "");
  out +=
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", escape(title), kPageStyle);
  out += body;
  out += fmt::format("</main>\n<script nonce=\"{}\">{}</script>\n</body>\n</html>\n", nonce, kPageScript);
  return out;
}

}  // namespace tandem::dashboard
