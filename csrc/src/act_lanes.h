// The activation functions on sixteen lanes. Knows nothing of: rows, threads.
#pragma once

#include "act.h"
#include "vmath.h"

namespace ov {

// Calls f with the point-wise function of `kind`, so that the loop around it is compiled once per function.
template <class F>
inline void with_act(Act kind, F&& f) {
  switch (kind) {
    case Act::kSilu: return f([](Lanes x) { return silu(x); });
    case Act::kGeluErf: return f([](Lanes x) { return gelu_erf(x); });
    case Act::kGeluTanh: return f([](Lanes x) { return gelu_tanh(x); });
    // max(0, x) returns x when it is NaN
    case Act::kRelu: return f([](Lanes x) { return max(set1(0.0f), x); });
  }
}

}  // namespace ov
