/* A part of flame.h: timers, and tables and maps of fixed size. */

static inline uint64_t flame_since(uint64_t now, uint64_t then) { return now > then ? now - then : 0; }

/* The longest that times may go back by. Those further ahead are of a wrong clock. */
#define FLAME_BACK 60000000000u
/* The same to choose the entry that gives way: only a free place precedes one of a wrong clock. */
static inline uint64_t flame_age(uint64_t now, uint64_t used) {
  return used > now && used - now > FLAME_BACK ? UINT64_MAX - 1 : flame_since(now, used);
}

/* A timer in packet time, for the times of packets and ticks. Time that goes back by up to a minute is
 * ignored; if it goes back further, a wrong time stamp had moved the timer ahead, and it begins again.
 *
 *   static struct flame_timer timer = FLAME_EVERY(1000000000);  at multiples of a second since 1970
 *   static struct flame_timer idle = FLAME_AFTER(1000000000);   once, a second after a first poll or restart
 *   uint64_t at;
 *   if (flame_poll(&timer, p->ts_ns, &at)) …                    `at` is the latest time that was due
 *
 * FLAME_EVERY is due at the same times on every worker. flame_poll returns the number of times that were due
 * since the last poll, and has a constant cost. */
struct flame_timer {
  uint64_t ns;
  uint64_t due; /* 0: not begun; UINT64_MAX: never */
  int periodic;
};
#define FLAME_EVERY(nanoseconds) {(nanoseconds), 0, 1}
#define FLAME_AFTER(nanoseconds) {(nanoseconds), 0, 0}

/* Begins again at `now`. */
static inline void flame_restart(struct flame_timer *t, uint64_t now) {
  uint64_t ns = t->ns ? t->ns : 1, from = t->periodic ? now - now % ns : now;
  t->due = from > UINT64_MAX - ns ? UINT64_MAX : from + ns;
}

static inline uint64_t flame_poll(struct flame_timer *t, uint64_t now, uint64_t *at) {
  if (t->due == 0) {
    flame_restart(t, now);
    return 0;
  }
  uint64_t due = t->due, ns = t->ns ? t->ns : 1;
  if (now < due || due == UINT64_MAX) {
    uint64_t began = due < ns ? 0 : due - ns, back = began > now ? began - now : 0;
    if (back > FLAME_BACK && (t->periodic || due != UINT64_MAX)) flame_restart(t, now);
    return 0;
  }
  flame_cold();
  uint64_t more = t->periodic ? (now - due) / ns : 0;
  *at = due + more * ns;
  t->due = t->periodic && *at <= UINT64_MAX - ns ? *at + ns : UINT64_MAX;
  return more + 1;
}

/* FLAME_FLOWS(flows, struct flow, last_ns) defines `struct flows`, a table of fixed size with state of flows,
 * found by the packets' flow hash. Sets have eight entries, in which a new entry replaces the least recently
 * used one, and at most four of one hash. last_ns is the entry's field with the time of its last use. An
 * entry expires `timeout` ns after it; .evicted counts entries that were replaced earlier. The cost of each
 * call does not depend on the contents of the table.
 *
 *   static struct flows table;
 *   flows_init(&table, capacity, timeout);                   in flame_init
 *   struct flow *f;
 *   FLAME_FLOWS_EACH(&table, p->hash, now_ns, last_ns, f)    every entry under this hash
 *     if (f->sport == sport) break;
 *   if (!f) f = flows_insert(&table, p->hash, now_ns);       a new entry, with the contents of an old one
 *   flows_remove(&table, f); */
#define FLAME_WAYS 8
#define FLAME_SAME 4 /* entries in a set that have one tag: no more are compared */
#define FLAME_FLOWS(name, type, used)                                                                        \
  struct name {                                                                                              \
    uint32_t (*tags)[FLAME_WAYS]; /* 0 marks a free place */                                                 \
    type (*entries)[FLAME_WAYS];                                                                             \
    uint32_t shift;                                                                                          \
    uint64_t timeout, evicted;                                                                               \
  };                                                                                                         \
  __attribute__((unused)) static inline void name##_init(struct name *t, uint64_t capacity,                  \
                                                         uint64_t timeout) {                                 \
    uint32_t bits = 1;                                                                                       \
    while (bits < 24 && ((uint64_t)FLAME_WAYS << bits) < capacity) bits++;                                   \
    t->shift = 32 - bits;                                                                                    \
    t->timeout = timeout;                                                                                    \
    t->tags = (uint32_t (*)[FLAME_WAYS])flame_take((uint64_t)sizeof *t->tags << bits);                       \
    t->entries = (type (*)[FLAME_WAYS])flame_take((uint64_t)sizeof *t->entries << bits);                     \
  }                                                                                                          \
  __attribute__((unused)) static inline type *name##_insert(struct name *t, uint32_t hash, uint64_t now) {   \
    flame_cold(); /* once per flow */                                                                        \
    uint32_t set = flame_set(t->shift, hash), *tags = t->tags[set];                                          \
    uint32_t same = flame_with_tag(tags, hash | 1), free = flame_with_tag(tags, 0);                          \
    uint32_t among = (1u << FLAME_WAYS) - 1;                                                                 \
    if (__builtin_popcount(same) >= FLAME_SAME) {                                                            \
      among = same;                                                                                          \
    } else if (free) {                                                                                       \
      among = free & -free; /* the first one */                                                              \
    }                                                                                                        \
    uint32_t chosen = (uint32_t)__builtin_ctz(among) % FLAME_WAYS;                                           \
    type *entries = t->entries[set];                                                                         \
    for (uint32_t way = 0; way < FLAME_WAYS; way++)                                                          \
      if (among >> way & 1 && flame_age(now, entries[way].used) > flame_age(now, entries[chosen].used))      \
        chosen = way;                                                                                        \
    if (tags[chosen] != 0 && flame_since(now, entries[chosen].used) <= t->timeout) t->evicted++;             \
    tags[chosen] = hash | 1;                                                                                 \
    return &entries[chosen];                                                                                 \
  }                                                                                                          \
  __attribute__((unused)) static inline void name##_remove(struct name *t, const type *entry) {              \
    uint32_t at = (uint32_t)(entry - &t->entries[0][0]);                                                     \
    t->tags[at / FLAME_WAYS][at % FLAME_WAYS] = 0;                                                           \
  }

/* Returns the set of a hash, which is multiplied because the low bits may have chosen the worker. */
static inline uint32_t flame_set(uint32_t shift, uint32_t hash) { return hash * 0x9e3779b1u >> shift; }

/* Returns a bit for each way that has this tag. */
static inline uint32_t flame_with_tag(const uint32_t tags[FLAME_WAYS], uint32_t tag) {
  typedef int32_t four __attribute__((vector_size(16)));
  four low, high, same = (four){0} + (int32_t)tag;
  __builtin_memcpy(&low, tags, 16);
  __builtin_memcpy(&high, tags + 4, 16);
  int ways = __builtin_wasm_bitmask_i32x4(low == same) | __builtin_wasm_bitmask_i32x4(high == same) << 4;
  return (uint32_t)ways;
}

/* Runs the statement after it with `e` at each entry under `hash` that has not expired. Those that have are
 * removed: if the time went back, they would be found beside others of the same flow. After a `break`, `e` is
 * the current entry; after the whole loop it is NULL. */
#define FLAME_FLOWS_EACH(t, hash, now, used_field, e)                                                        \
  for (uint32_t flame_in = flame_set((t)->shift, (hash)), flame_try = 0,                                     \
                flame_same = flame_with_tag((t)->tags[flame_in], (hash) | 1);                                \
       ((e) = NULL, flame_try < FLAME_SAME && flame_same); flame_try++, flame_same &= flame_same - 1)        \
    if (((e) = &(t)->entries[flame_in][__builtin_ctz(flame_same)],                                           \
         flame_since((now), (e)->used_field) <= (t)->timeout ||                                              \
             ((t)->tags[flame_in][__builtin_ctz(flame_same)] = 0, 0)))

/* FLAME_MAP(ports, struct key, uint64_t, 12) defines a map with 4 << 12 places:
 * `uint64_t *ports_find(const struct key *)` returns the value of a key, or NULL if there is none;
 * `uint64_t *ports_insert(const struct key *, uint64_t now_ns)` returns the value of a key, initially 0. If
 * all four places of a key are taken, the least recently inserted one is evicted, which ports_evicted counts:
 * it is not found any more.
 * All bytes of a key are compared, so set the padding between its fields too. */
#define FLAME_MAP(name, key_type, value_type, bits)                                                          \
  static struct name##_place {                                                                               \
    key_type key;                                                                                            \
    uint64_t used; /* time of the last insert plus 1; 0 if free */                                           \
    value_type value;                                                                                        \
  } name##_places[1u << (bits)][4];                                                                          \
  __attribute__((unused)) static uint64_t name##_evicted;                                                    \
  __attribute__((unused)) static inline value_type *name##_find(const key_type *key) {                       \
    struct name##_place *set = name##_places[flame_hash(key, sizeof *key) & ((1u << (bits)) - 1)];           \
    for (int way = 0; way < 4; way++)                                                                        \
      if (set[way].used && !__builtin_memcmp(&set[way].key, key, sizeof *key)) return &set[way].value;       \
    return NULL;                                                                                             \
  }                                                                                                          \
  __attribute__((unused)) static inline value_type *name##_insert(const key_type *key, uint64_t now_ns) {    \
    struct name##_place *set = name##_places[flame_hash(key, sizeof *key) & ((1u << (bits)) - 1)];           \
    struct name##_place *chosen = set;                                                                       \
    uint64_t used = now_ns + (now_ns < UINT64_MAX), age = 0;                                                 \
    for (int way = 0; way < 4; way++) {                                                                      \
      if (set[way].used && !__builtin_memcmp(&set[way].key, key, sizeof *key)) {                             \
        set[way].used = used;                                                                                \
        return &set[way].value;                                                                              \
      }                                                                                                      \
      uint64_t of = set[way].used ? flame_age(used, set[way].used) : UINT64_MAX;                             \
      if (of > age) age = of, chosen = &set[way];                                                            \
    }                                                                                                        \
    name##_evicted += chosen->used != 0;                                                                     \
    *chosen = (struct name##_place){.key = *key, .used = used};                                              \
    return &chosen->value;                                                                                   \
  }

/* Returns a hash of bytes (FNV-1a, with both halves combined). */
static inline uint32_t flame_hash(const void *bytes, uint32_t len) {
  const uint8_t *b = (const uint8_t *)bytes;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < len; i++) h = (h ^ b[i]) * UINT64_C(0x100000001b3);
  return (uint32_t)(h ^ h >> 32);
}
