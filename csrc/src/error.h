// The sentence behind a negative return code, one per thread.
#pragma once

namespace ov {

// printf-style; returns -1 so that callers can `return set_error(...)`.
int set_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace ov
