/* Nested headers, parsed recursively. */
#include "flame.h"

static uint32_t parse(const uint8_t *at, uint32_t len) {
  if (len < 4 || at[0] == 0) return 0;
  uint32_t inner = parse(at + at[1], len - 1);
  return inner ^ (parse(at + at[2], len - 2) * 31);
}
static uint32_t found;

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    uint32_t len;
    const uint8_t *payload = flame_payload(p, &len);
    found += parse(payload, len);
  }
  return flame_output(FLAME_DONE);
}
