/* A copy of as many bytes as memory holds. */
#include "flame.h"

static uint8_t kept[4096];
static uint32_t length;

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    __builtin_memcpy(kept, kept + 2048, length + p->hash);
  }
  return flame_output(FLAME_DONE);
}
