/* A part of flame.h: the output of calls: rows, texts, messages. */

/* The output area: rows and messages collect here until the call returns. When it is full, the next one
 * begins; the host takes them one after the other by flame_rest(), which is below. */
#ifndef FLAME_AREA
#define FLAME_AREA (1024 * 1024) /* the first area, at least 128 KiB and at most 17 MiB */
#endif
_Static_assert(FLAME_AREA >= 128 * 1024 && FLAME_AREA <= 17 * 1024 * 1024, "FLAME_AREA: 128 KiB to 17 MiB");
#define FLAME_FURTHER (512 * 1024) /* each further area */
#define FLAME_AREAS 1024           /* of which so many may wait for the host */
#define FLAME_LONGEST 65536        /* a row or message */
struct flame_area {
  uint8_t *at;
  uint32_t size, used;
};
static uint8_t flame_first[FLAME_AREA];
/* Area flame_current is being written. Those before it are full, those after it left from earlier calls. */
static struct flame_area flame_areas[FLAME_AREAS];
static uint32_t flame_current, flame_given;
static uint8_t *flame_at = flame_first;
static uint32_t flame_size = FLAME_AREA, flame_used, flame_row_start, flame_messages;
static uint64_t flame_lost;
static uint16_t flame_kind, flame_lost_of; /* the table of lost rows and 1, or 0 if they are of several */
static int flame_full;

/* Returns the number of payload bytes that fit into the current area. */
static inline uint32_t flame_room(void) {
  return flame_used + 24 > flame_size ? 0 : flame_size - flame_used - 24;
}

/* Begins the next area, unless there is no memory for it. */
static inline void flame_next_area(void) {
  flame_cold();
  if (flame_current >= FLAME_AREAS - 1) return;
  struct flame_area *next = &flame_areas[flame_current + 1];
  if (!next->at) {
    size_t pages = __builtin_wasm_memory_grow(0, FLAME_FURTHER / 65536);
    if (pages == (size_t)-1) return;
    next->at = (uint8_t *)(pages * 65536);
    next->size = FLAME_FURTHER;
  }
  flame_areas[flame_current++] = (struct flame_area){flame_at, flame_size, flame_used};
  flame_at = next->at;
  flame_size = next->size;
  flame_used = flame_messages = 0;
}

static inline void flame_put(const void *bytes, uint32_t len) {
  if (flame_full || len > FLAME_LONGEST || flame_used > flame_size - 16 - len) {
    flame_full = 1;
    return;
  }
  __builtin_memcpy(flame_at + flame_used, bytes, len);
  flame_used += len;
}

static inline void flame_begin_here(uint16_t kind) {
  uint16_t head[4] = {0, 0, kind, 0};
  flame_kind = kind;
  flame_row_start = flame_used;
  flame_full = 0;
  flame_put(head, 8);
}

static inline void flame_begin_frame(uint16_t kind) {
  /* Its size is not known yet, so there must be room for the longest. */
  if (flame_room() < FLAME_LONGEST) flame_next_area();
  flame_begin_here(kind);
}

/* Ends a row or message; returns 0 if it is longer than 65,536 bytes or there is no memory left for it. It is
 * then counted as lost. */
static inline int flame_finish(void) {
  uint32_t len = flame_used - flame_row_start - 8;
  if (flame_full || len > FLAME_LONGEST) {
    uint16_t of = flame_kind < 0xfff5 ? flame_kind + 1 : 0;
    flame_lost_of = flame_lost && flame_lost_of != of ? 0 : of;
    flame_used = flame_row_start;
    flame_lost++;
    return 0;
  }
  __builtin_memcpy(flame_at + flame_row_start, &len, 4);
  return 1;
}

/* To write a row: flame_row(table), each column in order, flame_finish(). */
static inline void flame_row(uint16_t table) { flame_begin_frame(table); }

/* Makes room for rows, which flame_reserved_row(table) begins: `bytes` is the sum of their columns and 8 for
 * each, at most 120,000. Such a row begins no area, so the bound of a packet that writes several contains
 * that cost once, or not at all if the room is made for a batch. A row without room is counted as lost. Call
 * it between rows: one that was begun must be finished first, or the host ends the module. */
static inline void flame_reserve(uint32_t bytes) {
  /* The next area may be smaller than one of which nothing is used. */
  if (flame_room() < bytes && flame_used > 0) flame_next_area();
}
static inline void flame_reserved_row(uint16_t table) { flame_begin_here(table); }

static inline void flame_u8(uint8_t v) { flame_put(&v, 1); }
static inline void flame_u16(uint16_t v) { flame_put(&v, 2); }
static inline void flame_u32(uint32_t v) { flame_put(&v, 4); }
static inline void flame_u64(uint64_t v) { flame_put(&v, 8); }
static inline void flame_i64(int64_t v) { flame_put(&v, 8); }
static inline void flame_f64(double v) { flame_put(&v, 8); }
static inline void flame_bool(int v) { flame_u8(v != 0); }
static inline void flame_mac(const uint8_t mac[6]) { flame_put(mac, 6); }
static inline void flame_put_ip(const struct flame_ip *ip) { flame_put(ip, sizeof *ip); }

/* Writes a text of at most 65,535 bytes of UTF-8; a longer one is truncated. */
static inline void flame_put_text(const char *text, uint32_t len) {
  if (len > 65535) {
    len = 65535;
    /* Do not cut within a character. */
    for (int i = 0; i < 3 && ((uint8_t)text[len] & 0xc0) == 0x80; i++) len--;
  }
  flame_u16((uint16_t)len);
  flame_put(text, len);
}

/* Sends a text of UTF-8 to the operator: `flame run` prints it on standard error after the module's name.
 * module.toml needs `log = true`, and under a grant the text needs the right `log`. At most 512 bytes are
 * taken. The host delivers 32 texts a second of packet time, drops the others and counts them. */
static inline void flame_log(const char *text, uint32_t len) {
  if (len > 512) {
    len = 512;
    /* Do not cut within a character. */
    for (int i = 0; i < 3 && ((uint8_t)text[len] & 0xc0) == 0x80; i++) len--;
  }
  flame_begin_frame(0xfffc);
  flame_put(text, len);
  flame_finish();
}

/* Sends bytes to the slow instance; the host takes at most 4,096 messages from one area. */
static inline int flame_send(const void *bytes, uint32_t len) {
  if (flame_messages == 4096) flame_next_area();
  flame_begin_frame(0xffff);
  flame_put(bytes, len);
  if (flame_messages == 4096) flame_full = 1;
  flame_messages += !flame_full;
  return flame_finish();
}

/* Returns the address and length of the next area of output, and whether another one follows. */
static inline uint64_t flame_hand(void) {
  if (flame_given < flame_current && flame_given < FLAME_AREAS) {
    const struct flame_area *area = &flame_areas[flame_given++];
    return (uint64_t)(uintptr_t)area->at | (uint64_t)area->used << 32 | UINT64_C(1) << 30;
  }
  if (flame_lost && flame_used <= flame_size - 16) {
    uint16_t head[4] = {8, 0, 0xfffe, flame_lost_of};
    __builtin_memcpy(flame_at + flame_used, head, 8);
    __builtin_memcpy(flame_at + flame_used + 8, &flame_lost, 8);
    flame_used += 16;
    flame_lost = 0;
  }
  uint64_t output = flame_used ? (uint64_t)(uintptr_t)flame_at | (uint64_t)flame_used << 32 : 0;
  flame_current = flame_given = flame_used = flame_messages = 0;
  flame_at = flame_first;
  flame_size = FLAME_AREA;
  return output;
}

/* Returns the result of a call: its output and whether to call again. */
static inline uint64_t flame_output(int progress) {
  return flame_hand() | (progress == FLAME_MORE ? UINT64_C(1) << 31 : 0);
}

/* The host calls this for the rest of a call's output. */
FLAME_EXPORT(flame_rest) uint64_t flame_rest(void) { return flame_hand(); }
