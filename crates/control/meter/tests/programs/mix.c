// Built by tests/programs.rs: the shapes of loops that modules have, over one megabyte of memory.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
#define EXPORT(name) __attribute__((export_name(name)))
#define SIZE (1 << 20)

static u8 bytes[SIZE];
static u32 table[1 << 16];
static u8 automaton[64][256];

// Nobody calls it, but without it the compiler would know that all bytes are zero.
EXPORT("setup") u32 setup(u32 seed) {
    u32 x = seed | 1;
    for (u32 i = 0; i < SIZE; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        bytes[i] = (u8)x;
    }
    for (u32 s = 0; s < 64; s++)
        for (u32 c = 0; c < 256; c++) automaton[s][c] = (u8)((s * 31 + c * 17) & 63);
    return x;
}

// A byte loop without a known count.
EXPORT("search") u32 search(u32 rounds) {
    u32 found = 0;
    for (u32 r = 0; r < rounds; r++)
        for (u32 i = 0; i + 3 < SIZE; i++)
            if (bytes[i] == 'G' && bytes[i + 1] == 'E' && bytes[i + 2] == 'T') found += i;
    return found;
}

EXPORT("walk") u32 walk(u32 rounds) {
    u32 state = 0, hits = 0;
    for (u32 r = 0; r < rounds; r++)
        for (u32 i = 0; i < SIZE; i++) {
            state = automaton[state][bytes[i]];
            hits += state == 7;
        }
    return hits;
}

EXPORT("sum") u32 sum(u32 rounds) {
    u32 total = 0;
    for (u32 r = 0; r < rounds; r++)
        for (u32 i = 0; i < SIZE; i++) total += bytes[i] ^ (total >> 3);
    return total;
}

// Hash table with probing: an inner loop that mostly runs once.
__attribute__((noinline)) static u32 *slot(u32 key) {
    u32 i = (key * 2654435761u) >> 16;
    while (table[i] != 0 && table[i] != key) i = (i + 1) & 0xffff;
    return &table[i];
}

EXPORT("flows") u32 flows(u32 rounds) {
    u32 added = 0;
    for (u32 r = 0; r < rounds; r++)
        for (u32 i = 0; i + 4 < SIZE; i += 4) {
            u32 key = 1 + (*(u32 *)(bytes + i) & 0x7fff);
            u32 *s = slot(key);
            added += *s == 0;
            *s = key;
        }
    return added;
}

static u32 one(u32 x) { return x + 1; }
static u32 two(u32 x) { return x * 3; }
static u32 three(u32 x) { u32 n = 0; while (x) { n += x & 1; x >>= 1; } return n; }
static u32 (*volatile const actions[])(u32) = { one, two, three };

EXPORT("dispatch") u32 dispatch(u32 rounds) {
    u32 x = 1;
    for (u32 r = 0; r < rounds; r++)
        for (u32 i = 0; i < SIZE; i++) {
            switch (bytes[i] & 15) {
            case 0: x += 5; break;
            case 1: x ^= i; break;
            case 2: x = x * 7 + 1; break;
            case 3: x -= 9; break;
            case 5: x = ~x; break;
            case 8: if (x == 12345) return i; break;
            case 9: x += actions[i % 3](x); break;
            default: x++;
            }
        }
    return x;
}

static u32 depth_first(u32 n, u32 x) {
  return n == 0 ? x : depth_first(n - 1, x * 3) + depth_first(n - 1, x + 1);
}
EXPORT("recurse") u32 recurse(u32 rounds) {
    u32 x = 0;
    for (u32 r = 0; r < rounds; r++) x += depth_first(15, r);
    return x;
}
