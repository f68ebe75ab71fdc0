/* A part of flame.h: what belongs to an instance: parameters, state, random numbers, memory. */

/* Compilers call memcmp, and there is no libc; memcpy and memset are instructions. */
__attribute__((weak, no_builtin("memcmp"))) int memcmp(const void *a, const void *b, size_t n) {
  const uint8_t *x = a, *y = b;
  for (size_t i = 0; i < n; i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

/* Returns the entry of parameter `name`, and stores where its value is and the value's length. Traps if there
 * is none. Both loops are counted, so that flame_init has a bound: names have at most 32 bytes, and a
 * manifest has at most 4,096 parameters. */
static inline const uint8_t *flame_entry(const struct flame_init *init, uint32_t len, const char *name,
                                         const uint8_t **value, uint32_t *size) {
  const uint8_t *p = (const uint8_t *)(init + 1), *end = (const uint8_t *)init + len;
  for (uint32_t tries = 0; tries < 4096 && end - p >= 8; tries++) {
    uint32_t name_len = p[0] | (uint32_t)p[1] << 8, i = 0;
    *size = p[4] | (uint32_t)p[5] << 8 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 24;
    while (i < 32 && i < name_len && name[i] && (uint8_t)name[i] == p[8 + i]) i++;
    *value = p + 8 + name_len;
    if (i == name_len && !name[i]) return p;
    p = *value + *size;
  }
  __builtin_trap();
}

/* Returns the value of parameter `name` and stores its length. Traps if there is none. */
static inline const uint8_t *flame_parameter(const struct flame_init *init, uint32_t len, const char *name,
                                             uint32_t *size) {
  const uint8_t *value;
  flame_entry(init, len, name, &value, size);
  return value;
}

/* Returns parameter `name` of module.toml: an integer, a boolean (0 or 1) or a duration in ns. */
static inline int64_t flame_integer(const struct flame_init *init, uint32_t len, const char *name) {
  uint32_t size;
  const uint8_t *p = flame_parameter(init, len, name, &size);
  int64_t value;
  if (size != 8) __builtin_trap();
  __builtin_memcpy(&value, p, 8);
  return value;
}

/* Returns a parameter of type number. */
static inline double flame_number(const struct flame_init *init, uint32_t len, const char *name) {
  int64_t bits = flame_integer(init, len, name);
  double value;
  __builtin_memcpy(&value, &bits, 8);
  return value;
}

/* Returns a text of `*size` bytes without a terminating 0. It is valid until flame_init returns. */
static inline const char *flame_text(const struct flame_init *init, uint32_t len, const char *name,
                                     uint32_t *size) {
  const uint8_t *value, *entry = flame_entry(init, len, name, &value, size);
  uint32_t place[2];
  /* A large text, which has `max` in module.toml, lies elsewhere: the value is its address and length. */
  if (entry[2] != 1) return (const char *)value;
  __builtin_memcpy(place, value, 8);
  *size = place[1];
  return (const char *)place[0];
}

/* A module with [state] in module.toml exports flame_export, which returns FLAME_STATE(address, length): its
 * state, at most `max` bytes, which stay as they are until the next call. It is called at the end, and on a
 * node after some ticks. flame_import is called once, after flame_init, with a state that an instance of the
 * same version exported; it may be damaged. It returns FLAME_TAKEN, or FLAME_REFUSED if it has changed
 * nothing and begins empty. An instance whose state another one takes over is not ended (flame_end). */
#define FLAME_STATE(at, len) ((uint64_t)(uintptr_t)(at) | (uint64_t)(len) << 32)
enum { FLAME_TAKEN = 0, FLAME_REFUSED = 1 }; /* flame_import */

/* Random numbers that follow from a seed: init->seed, which each instance has for itself. They are not for
 * secrets. The algorithm is SplitMix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number
 * Generators, OOPSLA 2014).
 *
 *   static struct flame_random random;
 *   random.state = init->seed;                               in flame_init
 *   if (flame_below(&random, 100) == 0) …                    one of 100 */
struct flame_random {
  uint64_t state;
};

static inline uint64_t flame_next(struct flame_random *r) {
  uint64_t n = r->state += UINT64_C(0x9e3779b97f4a7c15);
  n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
  return n ^ n >> 31;
}

/* Returns a number below n. Its cost is constant; some numbers are more likely by n in 2^32. */
static inline uint32_t flame_below(struct flame_random *r, uint32_t n) {
  return (uint32_t)((flame_next(r) >> 32) * n >> 32);
}

/* Requests `size` bytes of new memory, all 0, which cannot be freed. Returns NULL if the instance may not
 * have so much more. */
static inline void *flame_try_take(uint64_t size) {
  if (size > UINT64_C(1) << 30) return NULL;
  size_t pages = __builtin_wasm_memory_grow(0, (size_t)((size + 65535) / 65536));
  return pages == (size_t)-1 ? NULL : (void *)(pages * 65536);
}

/* Returns `size` bytes of new memory, all 0. It cannot be freed, so call this in flame_init. Without so much
 * memory the instance ends. */
static inline void *flame_take(uint64_t size) {
  void *memory = flame_try_take(size);
  if (!memory) __builtin_trap();
  return memory;
}

/* Returns the address of the n-th area of [[shared]] in module.toml: as many bytes as it states, which other
 * modules may change at any time, so copy a value before checking it. A write to an area with access = "read"
 * traps, and so does a memset into an area. */
static inline volatile uint8_t *flame_shared(uint32_t n) {
  return (volatile uint8_t *)(uintptr_t)(0xf8400000u + n * (24u << 20));
}
