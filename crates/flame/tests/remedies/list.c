/* A list is followed to its end. */
#include "flame.h"

struct item { struct item *next; uint32_t hash; };
static struct item *volatile first;
static uint32_t found;

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    for (struct item *at = first; at; at = at->next)
      found += at->hash == p->hash;
  }
  return flame_output(FLAME_DONE);
}
