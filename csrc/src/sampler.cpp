#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "allowed.h"
#include "candidates.h"
#include "logprobs.h"
#include "philox.h"

namespace ov {
namespace {

enum Status : int32_t { kOk = 0, kNotFinite = 1, kNothingAllowed = 2 };

}  // namespace

bool is_changed(const ov_sampling& s, int64_t l) {
  if (s.logits_hook) return true;
  if (s.bias_offsets && s.bias_offsets[l + 1] > s.bias_offsets[l]) return true;
  if (s.seen_offsets && s.seen_offsets[l + 1] > s.seen_offsets[l]) return true;
  return (s.mask_row && s.mask_row[l] >= 0) || (s.matchers && s.matchers[l]);
}

bool needs_no_logits(const ov_sampling& s, const ov_sample_output& out, int64_t first, int64_t rows) {
  for (int64_t l = first; l < first + rows; ++l) {
    const bool draws = s.temperature && s.temperature[l] > 0.0f && !(s.target && s.target[l] >= 0);
    const bool reports = out.logprob_ids && s.num_logprobs && s.num_logprobs[l] >= 0;
    if (draws || reports || is_changed(s, l)) return false;
  }
  return true;
}

namespace {

float value_or(const float* values, int64_t i, float otherwise) { return values ? values[i] : otherwise; }

bool wants_logprobs(const LogitChunk& c, int64_t row) {
  return c.out->logprob_ids && c.sampling->num_logprobs && c.sampling->num_logprobs[c.first + row] >= 0;
}

bool truncates(const LogitChunk& c, int64_t row) {
  const ov_sampling& s = *c.sampling;
  const int64_t l = c.first + row;
  const int32_t top_k = s.top_k ? s.top_k[l] : 0;
  return value_or(s.min_p, l, 0.0f) > 0.0f || value_or(s.top_p, l, 1.0f) < 1.0f || (top_k > 0 && top_k < c.vocab);
}

// Bits of the ids a row may have; nullptr: all.
const uint32_t* mask_of(const LogitChunk& c, int64_t row) {
  const ov_sampling& s = *c.sampling;
  if (!s.mask_row || s.mask_row[c.first + row] < 0) return nullptr;
  return s.masks + s.mask_row[c.first + row] * ((int64_t{c.vocab} + 31) / 32);
}

// Whether a row's mask need not be written to its logits: only the largest logit, or the sum of all weights, is wanted.
bool masks_when_drawn(const LogitChunk& c, int64_t row) {
  const bool reports_processed = c.reporting.mode == LogprobsMode::kProcessed && wants_logprobs(c, row);
  return !c.sampling->logits_hook && !reports_processed && !truncates(c, row);
}

// A row's grammar; nullptr: it has none.
void* matcher_of(const LogitChunk& c, int64_t row) {
  return c.sampling->matchers ? c.sampling->matchers[c.first + row] : nullptr;
}

// Bits of the ids that a row's matcher and its mask allow; nullptr: the matcher has failed.
const uint32_t* ask_matcher(const LogitChunk& c, int64_t row, void* matcher, const Workspace& ws) {
  const int64_t words = (int64_t{c.vocab} + 31) / 32;
  if (c.sampling->matcher_calls.fill(matcher, ws.mask, static_cast<size_t>(words) * 4) != 0) return nullptr;
  if (const uint32_t* own = mask_of(c, row))
    for (int64_t i = 0; i < words; ++i) ws.mask[i] &= own[i];
  return ws.mask;
}

// Blocks of a row that nothing changed since the head; nullptr: there are none.
const float* block_maxima(const LogitChunk& c, int64_t row) {
  return c.blocks && !is_changed(*c.sampling, c.first + row) ? c.blocks->maxima(row) : nullptr;
}

struct LogprobRow {
  int32_t* ids;
  float* values;
  int32_t* ranks;
  int32_t columns;  // K + 1

  LogprobRow(const ov_sample_output& out, int64_t l)
      : ids(out.logprob_ids + l * (out.max_logprobs + 1)),
        values(out.logprob_values + l * (out.max_logprobs + 1)),
        ranks(out.logprob_ranks + l * (out.max_logprobs + 1)),
        columns(out.max_logprobs + 1) {}

  void set(int32_t column, int32_t id, double value, int32_t rank) const {
    ids[column] = id;
    values[column] = static_cast<float>(value);
    ranks[column] = rank;
  }
  void clear_from(int32_t column) const {
    for (; column < columns; ++column) set(column, -1, -INFINITY, 0);
  }
  int32_t wanted(const ov_sampling& s, int64_t l) const { return std::min(s.num_logprobs[l], columns - 1); }
};

// The ids whose values a row asks for by name; none: it asks for the most likely ones.
struct AskedIds {
  const int32_t* ids = nullptr;
  int32_t count = 0;

  AskedIds(const ov_sampling& s, int64_t l, const LogprobRow& row) {
    if (!s.report_offsets || (s.target && s.target[l] >= 0)) return;
    ids = s.report_ids + s.report_offsets[l];
    count = std::min(static_cast<int32_t>(s.report_offsets[l + 1] - s.report_offsets[l]), row.columns - 1);
  }
};

// Log-softmax of x over its `n` ids, or x itself; returns log(sum(exp)), or 0.
double report_top(const LogprobRow& row, const float* x, int32_t n, float max, int32_t wanted, const AskedIds& asked,
                  bool is_logits, const Workspace& ws) {
  const double log_sum = is_logits ? 0.0 : log_sum_exp(x, n, max);
  const auto value = [&](int32_t id) { return static_cast<double>(x[id]) - log_sum; };
  if (asked.count) {
    for (int32_t i = 0; i < asked.count; ++i)
      row.set(1 + i, asked.ids[i], value(asked.ids[i]), rank_of(x, n, asked.ids[i]));
    row.clear_from(1 + asked.count);
    return log_sum;
  }
  const int32_t held = top_keys(x, n, wanted, ws.keys);
  for (int32_t i = 0; i < held; ++i) row.set(1 + i, key_id(ws.keys[i]), value(key_id(ws.keys[i])), 1 + i);
  row.clear_from(1 + held);
  return log_sum;
}

// The same of the distribution that was drawn from: kept candidates over temperature, then ids that were cut off, by
// rising id, with -inf.
void report_kept(const LogprobRow& row, const float* x, int32_t n, float inverse_temperature, float max, int32_t wanted,
                 const AskedIds& asked, bool is_logits, int32_t chosen, int32_t count, const Workspace& ws) {
  const Candidate* c = ws.candidates;
  const double log_sum = std::log(weight_of(c, count));
  const auto value = [&](int32_t id) {
    if (is_logits) return static_cast<double>(x[id] * inverse_temperature);
    return static_cast<double>((x[id] - max) * inverse_temperature) - log_sum;
  };
  const auto rank_in_kept = [&](int32_t id) {
    int32_t rank = 1;
    for (int32_t i = 0; i < count; ++i) rank += x[key_id(c[i].key)] > x[id];
    return rank;
  };
  if (asked.count) {
    for (int32_t i = 0; i < asked.count; ++i) {
      const int32_t id = asked.ids[i];
      const Candidate* found = std::lower_bound(
          c, c + count, id, [](const Candidate& k, int32_t wanted_id) { return key_id(k.key) < wanted_id; });
      const bool is_kept = found != c + count && key_id(found->key) == id;
      row.set(1 + i, id, is_kept ? value(id) : -INFINITY, is_kept ? rank_in_kept(id) : count + 1);
    }
    row.clear_from(1 + asked.count);
    row.set(0, chosen, value(chosen), rank_in_kept(chosen));
    return;
  }
  for (int32_t i = 0; i < count; ++i) ws.keys[i] = c[i].key;
  const int32_t held = std::min(wanted, count);
  std::partial_sort(ws.keys, ws.keys + held, ws.keys + count);
  for (int32_t i = 0; i < held; ++i) row.set(1 + i, key_id(ws.keys[i]), value(key_id(ws.keys[i])), 1 + i);
  int32_t column = 1 + held;
  for (int32_t id = 0, next = 0; id < n && column <= wanted; ++id) {
    if (next < count && key_id(c[next].key) == id) {
      ++next;
    } else {
      row.set(column, id, -INFINITY, column);
      ++column;
    }
  }
  row.clear_from(column);
  row.set(0, chosen, value(chosen), rank_in_kept(chosen));
}

// What a row draws from.
struct Drawn {
  const float* x;
  const float* maxima;      // blocks of x, or nullptr
  const uint32_t* allowed;  // bits, or nullptr
  RowStats stats;
};

int32_t status_of(const RowStats& stats) {
  return !stats.is_finite ? kNotFinite : stats.max == -INFINITY ? kNothingAllowed : kOk;
}

Filters filters_of(const LogitChunk& c, int64_t row) {
  const ov_sampling& s = *c.sampling;
  const int64_t l = c.first + row;
  Filters f{};
  f.inverse_temperature = 1.0f / s.temperature[l];
  f.top_p = value_or(s.top_p, l, 1.0f);
  f.min_p = value_or(s.min_p, l, 0.0f);
  f.top_k = s.top_k ? s.top_k[l] : 0;
  return f;
}

bool draws(const LogitChunk& c, int64_t row) {
  return c.sampling->temperature && c.sampling->temperature[c.first + row] > 0.0f;
}

// A token, drawn with random number `output_index` of the row or the most likely one. kept: candidates that filters have
// left in the workspace, or -1: all ids. pool: threads that are free for this row, or nullptr.
int32_t choose(ov_pool* pool, const LogitChunk& c, int64_t row, const Drawn& d, uint64_t output_index,
               const Workspace& ws, int32_t* kept) {
  if (!draws(c, row)) return d.stats.argmax;
  const Filters f = filters_of(c, row);
  const double uniform = philox_uniform(c.sampling->seed[c.first + row], output_index);
  if (!truncates(c, row)) return draw_any(pool, d.x, d.allowed, c.vocab, d.stats.max, f, uniform, ws);
  *kept = truncate(d.x, d.maxima, c.vocab, d.stats.max, f, ws);
  return draw_candidate(ws.candidates, *kept, uniform);
}

// Of a row whose mask is applied while it is drawn. First of all ids, most of which a grammar often allows, and if it
// refuses that one, of those that it allows: together the same distribution.
int32_t choose_with_matcher(ov_pool* pool, const LogitChunk& c, int64_t row, void* matcher, Drawn* d,
                            const Workspace& ws) {
  constexpr uint64_t kSecondDraw = uint64_t{1} << 63;
  const uint64_t index = c.sampling->output_index ? c.sampling->output_index[c.first + row] : 0;
  int32_t kept = -1;
  const int32_t chosen = choose(pool, c, row, *d, index, ws, &kept);
  const auto id = static_cast<uint32_t>(chosen);
  if (c.sampling->matcher_calls.allows(matcher, &id, 1) == 1) return chosen;
  const uint32_t* allowed = ask_matcher(c, row, matcher, ws);
  if (!allowed) return chosen;
  d->allowed = allowed;
  d->maxima = nullptr;
  d->stats = row_stats(d->x, c.vocab, allowed);
  return status_of(d->stats) == kOk ? choose(pool, c, row, *d, index | kSecondDraw, ws, &kept) : chosen;
}

void sample_row(ov_pool* pool, const LogitChunk& c, int64_t i, const SamplerScratch& scratch, const Workspace& ws) {
  const ov_sampling& s = *c.sampling;
  const int64_t l = c.first + i;
  const float* x = c.logits.f32(i);
  const int32_t target = s.target ? s.target[l] : -1;
  const Reporting& reporting = c.reporting;
  const bool reports = reporting.mode != LogprobsMode::kNone && wants_logprobs(c, i);
  const bool masks_now = masks_when_drawn(c, i);
  Drawn d{x, block_maxima(c, i), masks_now ? mask_of(c, i) : nullptr, {}};
  d.stats = d.maxima ? c.blocks->stats(i, x) : row_stats(x, c.vocab, d.allowed);

  int32_t chosen = target;
  int32_t kept = -1;  // candidates in ws, or -1: all ids
  if (status_of(d.stats) == kOk && target < 0) {
    void* const matcher = masks_now ? matcher_of(c, i) : nullptr;
    const uint64_t index = s.output_index ? s.output_index[l] : 0;
    chosen = matcher ? choose_with_matcher(pool, c, i, matcher, &d, ws) : choose(pool, c, i, d, index, ws, &kept);
  }
  const RowStats& stats = d.stats;
  const int32_t status = status_of(stats);
  c.out->status[l] = status;
  if (status != kOk) {
    c.out->sampled[l] = target;
    if (reports) LogprobRow(*c.out, l).clear_from(0);
    return;
  }
  c.out->sampled[l] = chosen;
  if (target < 0 && s.state_row && s.state_row[l] >= 0) c.last_tokens[s.state_row[l]] = chosen;
  if (!reports) return;

  const LogprobRow row(*c.out, l);
  const AskedIds asked(s, l, row);
  if (reporting.mode == LogprobsMode::kRaw) {
    const float* raw = is_changed(s, l) ? scratch.raw_row(i) : x;
    row.set(0, chosen, static_cast<double>(raw[chosen]) - *scratch.log_sum(i), rank_of(raw, c.vocab, chosen));
  } else if (target < 0 && draws(c, i)) {
    const Filters f = filters_of(c, i);
    if (kept < 0) kept = collect_all(x, d.maxima, c.vocab, stats.max, f, ws.candidates);
    report_kept(row, x, c.vocab, f.inverse_temperature, stats.max, row.wanted(s, l), asked, reporting.is_logits, chosen,
                kept, ws);
  } else {
    const double log_sum = report_top(row, x, c.vocab, stats.max, row.wanted(s, l), asked, reporting.is_logits, ws);
    row.set(0, chosen, static_cast<double>(x[chosen]) - log_sum, rank_of(x, c.vocab, chosen));
  }
}

}  // namespace

SamplerScratch::~SamplerScratch() {
  if (memory_) ov_memory_unmap(memory_, memory_bytes_);
  if (raw_) ov_memory_unmap(raw_, raw_bytes_);
  if (log_sums_) ov_memory_unmap(log_sums_, log_sums_bytes_);
}

bool SamplerScratch::allocate(int workers, int32_t vocab, int32_t chunk_rows) {
  worker_bytes_ = (Workspace::bytes(vocab) + 4095) / 4096 * 4096;
  memory_bytes_ = worker_bytes_ * workers;
  raw_stride_ = (int64_t{vocab} + 15) / 16 * 16;
  raw_bytes_ = raw_stride_ * 4 * chunk_rows;
  log_sums_bytes_ = 8 * int64_t{chunk_rows};
  memory_ = static_cast<char*>(ov_memory_map(memory_bytes_));
  raw_ = static_cast<float*>(ov_memory_map(raw_bytes_));
  log_sums_ = static_cast<double*>(ov_memory_map(log_sums_bytes_));
  return memory_ && raw_ && log_sums_;
}

void penalize(ov_pool* pool, const LogitChunk& c) {
  const ov_sampling& s = *c.sampling;
  if (!s.bias_offsets && !s.seen_offsets) return;
  const auto penalize_row = [&](int64_t i, int) {
    const int64_t l = c.first + i;
    float* x = c.logits.f32(i);
    if (s.bias_offsets)
      for (int64_t j = s.bias_offsets[l]; j < s.bias_offsets[l + 1]; ++j) x[s.bias_ids[j]] += s.bias_values[j];
    if (!s.seen_offsets) return;
    const float repetition = value_or(s.repetition_penalty, l, 1.0f);
    const float frequency = value_or(s.frequency_penalty, l, 0.0f);
    const float presence = value_or(s.presence_penalty, l, 0.0f);
    if (repetition == 1.0f && frequency == 0.0f && presence == 0.0f) return;
    for (int64_t j = s.seen_offsets[l]; j < s.seen_offsets[l + 1]; ++j) {
      float& v = x[s.seen_ids[j]];
      v = v > 0.0f ? v / repetition : v * repetition;
      if (s.seen_counts[j] > 0) v -= frequency * static_cast<float>(s.seen_counts[j]) + presence;
    }
  };
  const int64_t entries = (s.bias_offsets ? s.bias_offsets[c.first + c.rows] - s.bias_offsets[c.first] : 0) +
                          (s.seen_offsets ? s.seen_offsets[c.first + c.rows] - s.seen_offsets[c.first] : 0);
  parallel_rows(pool, c.rows, 8 * entries / std::max<int64_t>(c.rows, 1) + 1, penalize_row);
}

void mask(ov_pool* pool, const LogitChunk& c, const SamplerScratch& scratch) {
  const ov_sampling& s = *c.sampling;
  if (!s.mask_row && !s.matchers) return;
  parallel_rows(pool, c.rows, c.vocab, [&](int64_t i, int worker) {
    if (masks_when_drawn(c, i)) return;
    const uint32_t* bits = mask_of(c, i);
    if (void* const matcher = matcher_of(c, i))
      bits = ask_matcher(c, i, matcher, Workspace(scratch.worker(worker), c.vocab));
    if (!bits) return;
    float* x = c.logits.f32(i);
    const SomeIds allowed{bits};
    for (int32_t id = 0; id < c.vocab; id += kLanes) {
      if (allowed.lanes(id) == 0xffff) continue;
      const int n = std::min<int32_t>(kLanes, c.vocab - id);
      store_part(x + id, allowed.only(load_part(x + id, n), set1(-INFINITY), id), n);
    }
  });
}

void call_logits_hook(const LogitChunk& c) {
  const ov_sampling& s = *c.sampling;
  if (!s.logits_hook) return;
  s.logits_hook(s.hook_context, static_cast<int32_t>(c.first), static_cast<int32_t>(c.rows), c.logits.f32(0),
                c.logits.stride / static_cast<int64_t>(sizeof(float)));
}

void raw_logprobs(ov_pool* pool, const LogitChunk& c, const SamplerScratch& scratch, bool is_logits) {
  const ov_sampling& s = *c.sampling;
  if (!c.out->logprob_ids || !s.num_logprobs) return;
  parallel_rows(pool, c.rows, int64_t{c.vocab} * 8, [&](int64_t i, int worker) {
    if (!wants_logprobs(c, i)) return;
    const int64_t l = c.first + i;
    const float* x = c.logits.f32(i);
    const RowStats stats = c.blocks ? c.blocks->stats(i, x) : row_stats(x, c.vocab);  // nothing has changed them yet
    const LogprobRow row(*c.out, l);
    if (!stats.is_finite || stats.max == -INFINITY) return row.clear_from(0);  // sample() sets the status
    *scratch.log_sum(i) = report_top(row, x, c.vocab, stats.max, row.wanted(s, l), AskedIds(s, l, row), is_logits,
                                     Workspace(scratch.worker(worker), c.vocab));
    if (is_changed(s, l)) memcpy(scratch.raw_row(i), x, sizeof(float) * static_cast<size_t>(c.vocab));
  });
}

void sample(ov_pool* pool, const LogitChunk& c, const SamplerScratch& scratch) {
  if (c.rows == 1) return sample_row(pool, c, 0, scratch, Workspace(scratch.worker(0), c.vocab));
  parallel_rows(pool, c.rows, int64_t{c.vocab} * 2, [&](int64_t i, int worker) {
    sample_row(nullptr, c, i, scratch, Workspace(scratch.worker(worker), c.vocab));
  });
}

}  // namespace ov
