/* A module that means harm: it does not return, takes memory without end, floods its reader with rows, or
 * reads beyond its memory. */
#include "flame.h"

enum { ROWS = 1000 };

static char by;
static volatile uint64_t turns;

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  uint32_t size;
  const char *text = flame_text(init, len, "by", &size);
  by = size ? text[0] : 'l';
  return flame_output(FLAME_DONE);
}

static void flood(uint32_t packets) {
  for (uint64_t row = 0; row < (uint64_t)packets * ROWS; row++) {
    flame_row(0);
    flame_u64(row);
    flame_finish();
  }
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  if (by == 'm') {
    for (;;)
      if (__builtin_wasm_memory_grow(0, 16) == (size_t)-1) __builtin_trap();
  }
  if (by == 'r') flood(batch->count);
  if (by == 'b') turns = *(const volatile uint64_t *)0xfffffff0u;
  if (by == 'l')
    for (;;) turns++;
  return flame_output(FLAME_DONE);
}
