/* Every number goes through one digit loop with checked arithmetic, so that nothing wraps into a valid value. */
#include "topology/value.h"

#include <inttypes.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {
    {"ms", UINT64_C(1000000)},
    {"s", UINT64_C(1000000000)},
    {"m", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)},
};

/* Binary units first: a size is written with the largest that divides it. */
static const struct unit sizes[] = {
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"KB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
};

enum {
    DURATION_COUNT = sizeof durations / sizeof *durations,
    SIZE_COUNT = sizeof sizes / sizeof *sizes,
    BINARY_COUNT = 5
};

/* The leading digits; 0 when there are none, or a leading zero, or more than 64 bits. */
static size_t read_digits(const char *text, size_t length, uint64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;

    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return 0;
    }
    if (i > 1 && text[0] == '0')
        return 0;
    *ret = value;
    return i;
}

bool value_number(const char *text, size_t length, uint64_t low, uint64_t high, uint64_t *ret)
{
    uint64_t value;
    size_t digits = read_digits(text, length, &value);

    if (!digits || digits != length || value < low || value > high)
        return false;
    *ret = value;
    return true;
}

static bool with_unit(const char *text, size_t length, const struct unit *unit, size_t unit_count, uint64_t low,
                      uint64_t high, uint64_t *ret)
{
    uint64_t value;
    size_t digits = read_digits(text, length, &value);

    for (size_t i = 0; digits && i < unit_count; i++) {
        if (strlen(unit[i].name) != length - digits || memcmp(unit[i].name, text + digits, length - digits) != 0)
            continue;
        if (__builtin_mul_overflow(value, unit[i].factor, &value) || value < low || value > high)
            return false;
        *ret = value;
        return true;
    }
    return false;
}

bool value_duration(const char *text, size_t length, uint64_t low, uint64_t high, uint64_t *ret)
{
    return with_unit(text, length, durations, DURATION_COUNT, low, high, ret);
}

bool value_size(const char *text, size_t length, uint64_t low, uint64_t high, uint64_t *ret)
{
    return with_unit(text, length, sizes, SIZE_COUNT, low, high, ret);
}

/* At most 15 digits, so that digits and power of ten are exact and one division gives the nearest double. */
bool value_real(const char *text, size_t length, uint64_t low, uint64_t high, double *ret)
{
    const char *point = memchr(text, '.', length);
    size_t whole_length = point ? (size_t)(point - text) : length;
    uint64_t value = 0;
    uint64_t scale = 1;
    double real;

    if (length > 16 || read_digits(text, whole_length, &value) != whole_length || !whole_length)
        return false;
    if (point && whole_length + 1 == length)
        return false;
    for (size_t i = whole_length + 1; point && i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
        scale *= 10;
    }
    real = (double)value / (double)scale;
    if (real < (double)low || real > (double)high)
        return false;
    *ret = real;
    return true;
}

bool value_range(const char *text, size_t length, uint64_t limit, uint64_t *low, uint64_t *high)
{
    uint64_t from;
    uint64_t to;
    size_t digits = read_digits(text, length, &from);

    if (!digits || from > limit)
        return false;
    if (digits == length) {
        to = from;
    } else if (length < digits + 3 || memcmp(text + digits, "..", 2) != 0 ||
               !value_number(text + digits + 2, length - digits - 2, from, limit, &to)) {
        return false;
    }
    *low = from;
    *high = to;
    return true;
}

/* c in a set such as "a-z0-9._-": a hyphen between two characters is a range, at the end itself. */
static bool in_set(char c, const char *set)
{
    for (; *set; set++) {
        if (set[1] == '-' && set[2]) {
            if (c >= set[0] && c <= set[2])
                return true;
            set += 2;
        } else if (c == *set) {
            return true;
        }
    }
    return false;
}

bool value_styled(const char *text, size_t length, enum key_style style)
{
    const struct key_style_rule *rule = &key_styles[style];

    if (memchr(text, '\0', length) || (rule->max_characters && length > rule->max_characters))
        return false;
    if (style != STYLE_ANY && !length)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (rule->line && ((unsigned char)text[i] < 0x20 || text[i] == 0x7f))
            return false;
        if (rule->first && !in_set(text[i], i ? rule->rest : rule->first))
            return false;
    }
    return true;
}

int value_word(const struct key_words *words, const char *text, size_t length)
{
    for (size_t i = 0; i < words->count; i++) {
        if (words->word[i] && strlen(words->word[i]) == length && !memcmp(words->word[i], text, length))
            return (int)i;
    }
    return -1;
}

static void write_unit(struct text *text, uint64_t value, const struct unit *unit, size_t unit_count)
{
    size_t best = 0;

    for (size_t i = 1; value && i < unit_count; i++) {
        if (value % unit[i].factor == 0)
            best = i;
    }
    text_add(text, "%" PRIu64 "%s", value / unit[best].factor, unit[best].name);
}

void value_write_duration(struct text *text, uint64_t ns)
{
    write_unit(text, ns, durations, DURATION_COUNT);
}

void value_write_size(struct text *text, uint64_t bytes)
{
    write_unit(text, bytes, sizes, BINARY_COUNT);
}

void value_write_words(struct text *text, const struct key_words *words, const char *quote)
{
    const char *separator = "";

    for (size_t i = 0; i < words->count; i++) {
        if (!words->word[i])
            continue;
        text_add(text, "%s%s%s%s", separator, quote, words->word[i], quote);
        separator = ", ";
    }
}

static void expect_number(const struct key *key, struct text *text)
{
    if (key->low == key->high)
        text_add(text, "%" PRIu64, key->low);
    else
        text_add(text, "a whole number %" PRIu64 "..%" PRIu64, key->low, key->high);
    if (key->flags & KEY_AUTO)
        text_add(text, ", or auto");
}

static void expect_unit(const struct key *key, struct text *text)
{
    bool duration = key->type == KEY_DURATION;
    void (*write)(struct text *, uint64_t) = duration ? value_write_duration : value_write_size;

    text_add(text, duration ? "a duration " : "a size ");
    write(text, key->low);
    text_add(text, "..");
    write(text, key->high);
    text_add(text, duration ? " (units ms, s, m, h)" : " (units B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)");
}

void value_expectation(const struct key *key, uint64_t world_size, struct text *text)
{
    switch (key->type) {
    case KEY_NUMBER:
    case KEY_NUMBERS:
        expect_number(key, text);
        break;
    case KEY_DURATION:
    case KEY_SIZE:
        expect_unit(key, text);
        break;
    case KEY_REAL:
        text_add(text, "a number %" PRIu64 "..%" PRIu64 ", such as 0.7, of at most 15 digits", key->low, key->high);
        break;
    case KEY_FLAG:
        text_add(text, "true or false");
        break;
    case KEY_WORD:
    case KEY_MASK:
        text_add(text, "one of ");
        value_write_words(text, key->words, "");
        break;
    case KEY_AXES:
        text_add(text, "one of ");
        value_write_words(text, &key_axes, "");
        break;
    case KEY_TEXT:
    case KEY_TEXTS:
        text_add(text, "%s", key_styles[key->style].says);
        break;
    case KEY_RANK:
    case KEY_RANKS:
        text_add(text, "a world rank 0..%" PRIu64, world_size - 1);
        break;
    case KEY_PAIRS:
        text_add(text, "a mapping of names to texts");
        break;
    case KEY_EXTENTS:
        text_add(text, "a range such as 1..64, or one number, up to %" PRIu64, key->high);
        break;
    case KEY_SHAPE:
        text_add(text, "a number, a range such as 1..64, or the name of an extent");
        break;
    case KEY_SECTION:
    case KEY_ITEMS:
        text_add(text, "%s", key->section->shorthand ? key->section->says : "a mapping");
        break;
    case KEY_OPEN:
        text_add(text, "a mapping");
        break;
    }
}
