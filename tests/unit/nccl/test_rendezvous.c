/* Announcements and notes as bytes: both directions, every damaged bit, and any bytes at all. */
#include <check.h>
#include <string.h>

#include "backends/nccl/nccl_rendezvous.h"
#include "base/bytes.h"
#include "tests/suite.h"

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct announcement announcement(void)
{
    struct announcement made = {
        .headroom = true, .number = 77, .payload_bytes = (uint64_t)5 << 32, .header_bytes = 192};

    for (int i = 0; i < 192; i++)
        made.header[i] = (unsigned char)(i * 7 + 1);
    return made;
}

static struct note note(void)
{
    struct note made = {.kind = NOTE_READY,
                        .joined = true,
                        .object = 9,
                        .status = STATUS_LOST,
                        .number = 3,
                        .ticket = 12,
                        .data_bytes = 5};

    memcpy(made.data, "hello", 5);
    return made;
}

START_TEST(an_announcement_is_read_as_it_was_written)
{
    struct announcement made = announcement();
    struct announcement got = {0};
    unsigned char bytes[ANNOUNCE_BYTES];

    announcement_encode(&made, bytes);
    ck_assert_int_eq(announcement_decode(bytes, &got, NULL), STATUS_OK);
    ck_assert(got.headroom && !got.literal);
    ck_assert_uint_eq(got.number, 77);
    ck_assert_uint_eq(got.payload_bytes, (uint64_t)5 << 32);
    ck_assert_uint_eq(got.header_bytes, 192);
    ck_assert_mem_eq(got.header, made.header, sizeof got.header);
    /* Where a reader of the format finds them. */
    ck_assert_uint_eq(get_u32(bytes + 12), 192);
    ck_assert_uint_eq(get_u64(bytes + 16), 77);
    ck_assert_uint_eq(bytes[40], 1);
}
END_TEST

START_TEST(a_note_is_read_as_it_was_written)
{
    struct note made = note();
    struct note got = {0};
    unsigned char bytes[NOTE_BYTES];
    bool ours = false;

    note_encode(&made, bytes);
    ck_assert_int_eq(note_decode(bytes, &got, &ours, NULL), STATUS_OK);
    ck_assert(ours && got.joined);
    ck_assert_int_eq(got.kind, NOTE_READY);
    ck_assert_uint_eq(got.object, 9);
    ck_assert_int_eq(got.status, STATUS_LOST);
    ck_assert_uint_eq(got.number, 3);
    ck_assert_uint_eq(got.ticket, 12);
    ck_assert_uint_eq(got.data_bytes, 5);
    ck_assert_mem_eq(got.data, "hello", 5);
    ck_assert_uint_eq(get_u64(bytes + 40), 12);
}
END_TEST

START_TEST(every_flipped_bit_of_an_announcement_is_refused)
{
    struct announcement made = announcement();
    struct announcement got;
    unsigned char bytes[ANNOUNCE_BYTES];

    announcement_encode(&made, bytes);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        struct error err = {0};

        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_msg(announcement_decode(bytes, &got, &err) == STATUS_CORRUPT, "bit %zu", bit);
        ck_assert_ptr_nonnull(strstr(err.text, "announcement of a device message"));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}
END_TEST

/* A flip of the magic makes it somebody else's message, which comm refuses by its own magic. */
START_TEST(every_flipped_bit_of_a_note_is_refused_or_not_ours)
{
    struct note made = note();
    struct note got;
    unsigned char bytes[NOTE_BYTES];

    note_encode(&made, bytes);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bool ours = false;
        enum status st;

        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        st = note_decode(bytes, &got, &ours, NULL);
        ck_assert_msg(bit < 64 ? st == STATUS_OK && !ours : st == STATUS_CORRUPT, "bit %zu", bit);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}
END_TEST

/* With a right checksum over wrong fields, too: lengths never lead out of the message. */
START_TEST(fields_out_of_range_are_refused_under_a_right_checksum)
{
    static const struct {
        size_t at;
        uint32_t value;
        const char *text;
    } notes[] = {{16, 1, "protocol 1, expected 2"},
                 {16, 3, "protocol 3, expected 2"},
                 {18, 0, "kind 0"},
                 {18, NOTE_KINDS, "kind"},
                 {20, 2, "flags"},
                 {28, STATUS_COUNT, "status"},
                 {48, NOTE_DATA_BYTES + 1, "bytes"},
                 {48, UINT32_MAX, "bytes"}};
    struct announcement made = announcement();
    struct announcement got = {0};

    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        struct note good = note();
        struct note read = {0};
        struct error err = {0};
        unsigned char bytes[NOTE_BYTES];
        bool ours = false;

        note_encode(&good, bytes);
        if (notes[i].at < 20)
            put_u16(bytes + notes[i].at, (uint16_t)notes[i].value);
        else
            put_u32(bytes + notes[i].at, notes[i].value);
        note_seal(bytes);
        ck_assert_int_eq(note_decode(bytes, &read, &ours, &err), STATUS_CORRUPT);
        ck_assert_msg(strstr(err.text, notes[i].text) != NULL, "%s", err.text);
    }
    for (uint32_t header = 0; header < 3; header++) {
        unsigned char bytes[ANNOUNCE_BYTES];

        announcement_encode(&made, bytes);
        put_u32(bytes + 12, header == 0 ? 0 : header == 1 ? ANNOUNCE_HEADER_BYTES + 1 : UINT32_MAX);
        announcement_seal(bytes);
        ck_assert_int_eq(announcement_decode(bytes, &got, NULL), STATUS_CORRUPT);
    }
    {
        unsigned char bytes[ANNOUNCE_BYTES];

        announcement_encode(&made, bytes);
        put_u64(bytes + 24, UINT64_MAX - 100);
        announcement_seal(bytes);
        ck_assert_int_eq(announcement_decode(bytes, &got, NULL), STATUS_CORRUPT);
    }
}
END_TEST

START_TEST(any_bytes_are_refused_or_hold_what_they_say)
{
    uint64_t state = 88172645463325252u;
    unsigned char bytes[NOTE_BYTES];
    struct announcement announced;
    struct note got = {0};
    int taken = 0;

    for (int i = 0; i < 200000; i++) {
        struct note good = note();
        bool ours = false;

        note_encode(&good, bytes);
        for (uint64_t k = next(&state) % 6; k; k--)
            bytes[8 + next(&state) % 64] = (unsigned char)next(&state);
        if (i % 2)
            note_seal(bytes);
        if (note_decode(bytes, &got, &ours, NULL) == STATUS_OK && ours) {
            ck_assert(got.kind >= NOTE_HELLO && got.kind < NOTE_KINDS && got.data_bytes <= NOTE_DATA_BYTES);
            ck_assert(got.status < STATUS_COUNT);
            taken++;
        }
        put_u64(bytes, UINT64_C(0x4543554e4e415246));
        announcement_seal(bytes);
        if (announcement_decode(bytes, &announced, NULL) == STATUS_OK)
            ck_assert(announced.header_bytes <= ANNOUNCE_HEADER_BYTES);
    }
    ck_assert_int_gt(taken, 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl rendezvous");
    TCase *tests = tcase_create("nccl rendezvous");

    tcase_add_test(tests, an_announcement_is_read_as_it_was_written);
    tcase_add_test(tests, a_note_is_read_as_it_was_written);
    tcase_add_test(tests, every_flipped_bit_of_an_announcement_is_refused);
    tcase_add_test(tests, every_flipped_bit_of_a_note_is_refused_or_not_ours);
    tcase_add_test(tests, fields_out_of_range_are_refused_under_a_right_checksum);
    tcase_add_test(tests, any_bytes_are_refused_or_hold_what_they_say);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
