// Ids that filters leave of a row of logits, and drawing one.
//
// Everything is done by one thread in a fixed order. Knows nothing of: requests, batches, random numbers.
#pragma once

#include <cstdint>

#include "lanes.h"
#include "pool.h"

namespace ov {

inline constexpr int32_t kWeightBlock = 256;  // ids whose weights are summed in f32 before going into an f64

struct Candidate {
  uint64_t key;  // logit_key
  float weight;  // exp((logit - max) / temperature)
};

// One worker's memory, for a vocabulary of `vocab` ids.
struct Workspace {
  Candidate* candidates;  // [vocab + 16]
  uint64_t* keys;         // [vocab + 16]
  int32_t* active;        // [vocab + 16]
  double* block_sums;     // [vocab / kWeightBlock + 1]
  uint32_t* mask;         // [vocab / 32 + 1]

  static int64_t bytes(int64_t vocab) {
    return (vocab + 16) * static_cast<int64_t>(sizeof(Candidate) + sizeof(uint64_t) + sizeof(int32_t)) +
           (vocab / kWeightBlock + 2) * 8 + (vocab / 32 + 1) * 4;
  }
  Workspace(char* memory, int64_t vocab) {
    candidates = reinterpret_cast<Candidate*>(memory);
    keys = reinterpret_cast<uint64_t*>(candidates + vocab + 16);
    block_sums = reinterpret_cast<double*>(keys + vocab + 16);
    active = reinterpret_cast<int32_t*>(block_sums + vocab / kWeightBlock + 2);
    mask = reinterpret_cast<uint32_t*>(active + vocab + 16);
  }
};

struct Filters {
  float inverse_temperature, top_p, min_p;
  int32_t top_k;
};

// Ids of positive weight, in rising order, into `out`. maxima: the row's blocks (logit_blocks.h), or nullptr.
int32_t collect_all(const float* x, const float* maxima, int32_t n, float max, const Filters& f, Candidate* out);

// Ids that survive min-p, then top-k, then top-p, in rising order, into the workspace. max: of the row.
int32_t truncate(const float* x, const float* maxima, int32_t n, float max, const Filters& f, const Workspace& ws);

double weight_of(const Candidate* candidates, int32_t count);

// Inverse of the cumulative weight over rising ids at uniform * total: of candidates, of all ids. pool: threads that are
// free for this row, or nullptr; the bits are the same.
int32_t draw_candidate(const Candidate* c, int32_t count, double uniform);
// allowed: bits of ids (allowed.h), as if all others were -inf; null: all.
int32_t draw_any(ov_pool* pool, const float* x, const uint32_t* allowed, int32_t n, float max, const Filters& f,
                 double uniform, const Workspace& ws);

}  // namespace ov
