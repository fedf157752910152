#include "error.h"

#include <cstdarg>
#include <cstdio>

#include "octavo.h"

namespace ov {

static thread_local char last_error[512] = "";

int set_error(const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(last_error, sizeof last_error, format, args);
  va_end(args);
  return -1;
}

}  // namespace ov

const char* ov_last_error(void) { return ov::last_error; }
