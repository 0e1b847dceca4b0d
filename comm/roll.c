/* Offsets in the contents, little-endian.  Question: 0 group u32; 8 sequence u64.  Answer: 0 group u32; 4 state u32;
 * 8 sequence u64; 16 words.
 *
 * Cost: a message there and one or two back for each member asked; nothing while nobody doubts but one copy of a
 * signature at the end of each operation. */
#include "comm/roll.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "comm/collective.h"

enum { QUESTION_BYTES = 16, ANSWER_WORDS = 16, WORDS_MOST = 480, KEPT = 8 };

struct told {
    enum roll_state state;
    uint64_t asked_ns; /* 0: never */
    char *words;
};

struct roll {
    int size;
    bool differs;
    struct told member[];
};

/* A ring by sequence number. */
struct past {
    struct {
        bool used;
        struct frame frame;
        char counts[ROUTE_ROLE_BYTES + 1];
    } kept[KEPT];
};

void roll_destroy(struct roll *roll)
{
    for (int i = 0; roll && i < roll->size; i++)
        free(roll->member[i].words);
    free(roll);
}

void past_destroy(struct past *past)
{
    free(past);
}

void past_keep(struct group *group, const struct collective *work)
{
    size_t at = work->completion.sequence % KEPT;

    if (!group->past && !(group->past = calloc(1, sizeof *group->past)))
        return;
    group->past->kept[at].used = true;
    collective_signature(work, &group->past->kept[at].frame);
    memcpy(group->past->kept[at].counts, work->counts, sizeof work->counts);
    group->past->kept[at].frame.role = group->past->kept[at].counts;
}

static struct group *find_group(struct session *session, uint32_t id)
{
    return session->world && id == session->world_spec.id ? session->world : session_group(session, id);
}

static int find_member(const struct group *group, int rank)
{
    for (int i = 0; i < group->spec.size; i++) {
        if (group->spec.members[i] == rank)
            return i;
    }
    return -1;
}

/* The queued collective of this sequence number; NULL: none. */
static struct collective *find_queued(const struct group *group, uint64_t sequence)
{
    struct completion *at = group->lane.first;

    while (at && at->sequence != sequence)
        at = at->next;
    return (struct collective *)at;
}

void roll_ask(struct collective *work, int member, uint64_t gap_ns)
{
    uint64_t now_ns = clock_ns();
    unsigned char data[QUESTION_BYTES] = {0};
    struct told *told = NULL;

    if (member < 0 || member >= work->size || member == work->rank)
        return;
    if (!work->roll) {
        work->roll = calloc(1, sizeof *work->roll + (size_t)work->size * sizeof *work->roll->member);
        if (!work->roll)
            return;
        work->roll->size = work->size;
    }
    told = &work->roll->member[member];
    if (told->state == ROLL_CALLED || told->state == ROLL_PAST || (told->asked_ns && now_ns - told->asked_ns < gap_ns))
        return;
    told->asked_ns = now_ns;
    put_u32(data, work->group->spec.id);
    put_u64(data + 8, work->completion.sequence);
    control_roll(work->completion.session->control, work->group->spec.members[member], false, data, sizeof data);
}

enum roll_state roll_state(const struct collective *work, int member)
{
    return work->roll ? work->roll->member[member].state : ROLL_SILENT;
}

const char *roll_words(const struct collective *work, int member)
{
    return work->roll ? work->roll->member[member].words : NULL;
}

bool roll_differs(const struct collective *work)
{
    return work->roll && work->roll->differs;
}

/* What this rank was called with there, in words. */
static enum roll_state recall(const struct group *group, uint64_t sequence, struct text *words)
{
    const struct collective *queued = find_queued(group, sequence);
    size_t at = sequence % KEPT;
    struct frame frame;

    if (queued) {
        collective_signature(queued, &frame);
        collective_describe(words, &frame);
        return ROLL_CALLED;
    }
    if (sequence >= group->sequence)
        return ROLL_BEFORE;
    if (!group->past || !group->past->kept[at].used || group->past->kept[at].frame.sequence != sequence)
        return ROLL_PAST;
    collective_describe(words, &group->past->kept[at].frame);
    return ROLL_CALLED;
}

static bool take_question(struct session *session, int peer, const unsigned char *data, size_t bytes)
{
    unsigned char answer[ANSWER_WORDS + WORDS_MOST] = {0};
    const struct group *group = NULL;
    struct text words = {0};
    size_t length;

    if (bytes != QUESTION_BYTES)
        return false;
    group = find_group(session, get_u32(data));
    if (!group || group->rank < 0)
        return true; /* not built here, or not yet: silence says so */
    put_u32(answer, get_u32(data));
    put_u32(answer + 4, recall(group, get_u64(data + 8), &words));
    put_u64(answer + 8, get_u64(data + 8));
    length = strnlen(text_string(&words), WORDS_MOST);
    memcpy(answer + ANSWER_WORDS, text_string(&words), length);
    control_roll(session->control, peer, true, answer, ANSWER_WORDS + length);
    text_done(&words);
    return true;
}

/* Are these this collective's own words? */
static bool own_words(const struct collective *work, const char *words)
{
    struct frame frame;
    struct text own = {0};
    bool same;

    collective_signature(work, &frame);
    collective_describe(&own, &frame);
    same = !strncmp(text_string(&own), words, WORDS_MOST);
    text_done(&own);
    return same;
}

static bool take_answer(struct session *session, int peer, const unsigned char *data, size_t bytes)
{
    const struct group *group = NULL;
    struct collective *work = NULL;
    struct told *told = NULL;
    uint32_t state;
    int member;

    if (bytes < ANSWER_WORDS || bytes > ANSWER_WORDS + WORDS_MOST)
        return false;
    state = get_u32(data + 4);
    if (state != ROLL_BEFORE && state != ROLL_CALLED && state != ROLL_PAST)
        return false;
    group = find_group(session, get_u32(data));
    work = group ? find_queued(group, get_u64(data + 8)) : NULL;
    member = group ? find_member(group, peer) : -1;
    if (!work || !work->roll || member < 0)
        return true; /* it has ended meanwhile */
    told = &work->roll->member[member];
    if (told->words)
        return true;
    told->state = (enum roll_state)state;
    if (state == ROLL_CALLED && !(told->words = strndup((const char *)data + ANSWER_WORDS, bytes - ANSWER_WORDS)))
        told->state = ROLL_PAST;
    if (told->words && !own_words(work, told->words))
        work->roll->differs = true;
    return true;
}

bool roll_take(void *context, int peer, bool answer, const unsigned char *data, size_t bytes)
{
    return answer ? take_answer(context, peer, data, bytes) : take_question(context, peer, data, bytes);
}
