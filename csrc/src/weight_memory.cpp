#include "weight_memory.h"

#include <sys/mman.h>

#include <mutex>
#include <new>

#include "int_lanes.h"
#include "octavo.h"

namespace ov {

namespace {

constexpr int64_t kPage = int64_t{64} << 10;  // the largest page size in use
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSlabBytes = int64_t{64} << 20;  // address space; pages are touched as weights are written

struct Slab {
  uint8_t* data;
  int64_t bytes, used;
  int64_t live;  // weights inside
};

std::mutex slab_mutex;
Slab* open_slab = nullptr;  // the one that small weights are added to

Slab* slab_create(int64_t bytes) {
  void* data = ov_memory_map(bytes);
  if (!data) return nullptr;
  Slab* slab = new (std::nothrow) Slab{static_cast<uint8_t*>(data), bytes, 0, 0};
  if (!slab) ov_memory_unmap(data, bytes);
  return slab;
}

void slab_destroy(Slab* slab) {
  ov_memory_unmap(slab->data, slab->bytes);
  delete slab;
}

}  // namespace

WeightMemory weight_memory_take(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(slab_mutex);
  bytes = round_up(bytes, 64);
  if (open_slab && open_slab->bytes - open_slab->used < bytes) {
    if (open_slab->live == 0) slab_destroy(open_slab);
    open_slab = nullptr;
  }
  Slab* slab = open_slab;
  if (!slab) {
    slab = slab_create(bytes > kSlabBytes ? round_up(bytes, kHugePage) : kSlabBytes);
    if (!slab) return {nullptr, nullptr};
    open_slab = slab;
  }
  uint8_t* data = slab->data + slab->used;
  slab->used += bytes;
  ++slab->live;
  return {data, slab};
}

void weight_memory_give(void* opaque) {
  const std::lock_guard<std::mutex> lock(slab_mutex);
  Slab* slab = static_cast<Slab*>(opaque);
  if (--slab->live > 0) return;
  if (slab == open_slab) open_slab = nullptr;
  slab_destroy(slab);
}

}  // namespace ov

void* ov_memory_map(int64_t bytes) {
  if (bytes <= 0) return nullptr;
  // over-map by a huge page so that the start can be aligned to one, then give the ends back
  constexpr int64_t huge = ov::kHugePage;
  const int64_t size = ov::round_up(bytes, ov::kPage);
  const bool align = size >= huge;
  const int64_t mapped = align ? size + huge : size;
  void* p = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(p);
  if (align) {
    const int64_t before = -reinterpret_cast<intptr_t>(start) & (huge - 1);
    if (before) munmap(start, static_cast<size_t>(before));
    if (huge - before) munmap(start + before + size, static_cast<size_t>(huge - before));
    start += before;
    madvise(start, static_cast<size_t>(size), MADV_HUGEPAGE);
  }
  return start;
}

void ov_memory_unmap(void* p, int64_t bytes) {
  if (p) munmap(p, static_cast<size_t>(ov::round_up(bytes, ov::kPage)));
}
