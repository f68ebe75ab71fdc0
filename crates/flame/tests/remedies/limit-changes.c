/* The limit is read again in each iteration. */
#include "flame.h"

static volatile uint32_t count;
static uint32_t ports[512], found;

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    for (uint32_t k = 0; k < count; k++)
      found += ports[k & 511] == p->hash;
  }
  return flame_output(FLAME_DONE);
}
