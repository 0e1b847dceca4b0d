/* Scores, of looks and of ways.  A time that was quick outweighs those that were slow: nobody reads more quickly than
 * he can, but whoever is interrupted, or finds his pages unmapped, is slow once.
 *
 * Cost: where a way is slow, one message in TRIAL_LATER * SURE takes it all the same.  If that lasts three times as
 * long, it is three in a hundred of all. */
#include "backends/mpi/mpi_distance.h"

enum {
    /* Of a look: 10 to 60 with one cache, 90 to 170 and more without (of an AMD EPYC); 60 to 130 where one cache spans
     * many cores (of an Intel Xeon).  What takes longer than the second tells of something else. */
    NEAR_NS = 75,
    LOST_NS = 2000,

    /* Of a line among many that is read or written: lent, with the copy to where it belongs, 4 to 10 with one cache, of
     * either machine, 25 and more without.  What takes longer than the second, in the mean, tells of something else. */
    QUICK_NS = 16,
    LOST_LINE_NS = 250,
    LEAST_LINES = 64,

    SURE = 4, /* looks, or times, that balance each other */
    /* Messages before one takes a way to measure it: of what is not known, and for each time that was slow. */
    TRIAL_SOON = 4,
    TRIAL_LATER = 16
};

/* Whoever was far, and is near now, may read as quickly as others that are. */
void distance_looked(struct distance *distance, uint64_t ns)
{
    if (ns >= LOST_NS)
        return;
    if (ns >= NEAR_NS)
        distance->near = (int8_t)(distance->near > -SURE ? distance->near - 1 : -SURE);
    else
        distance->near = (int8_t)(distance->near < SURE ? distance->near + 1 : SURE);
    if (distance->near == SURE && distance->far && distance->lent.quick < 0)
        distance->lent.quick = 0;
    if (distance->near == SURE || distance->near == -SURE)
        distance->far = distance->near < 0;
}

bool distance_is_near(const struct distance *distance)
{
    return distance->near > 0;
}

static void took(struct distance_way *way, uint64_t lines, uint64_t ns)
{
    if (!ns || lines < LEAST_LINES || ns / lines >= LOST_LINE_NS)
        return;
    if (ns / lines >= QUICK_NS)
        way->quick = (int8_t)(way->quick > -SURE ? way->quick - 1 : -SURE);
    else if (way->quick < 0)
        way->quick = 0;
    else
        way->quick = (int8_t)(way->quick < SURE ? way->quick + 1 : SURE);
}

/* Does the next message go this way?  likely: it is thought to be quick, as far as is not known. */
static bool goes(struct distance_way *way, bool likely)
{
    int trial = way->quick < 0 ? -way->quick * TRIAL_LATER : TRIAL_SOON;
    bool takes = way->quick > 0 || (!way->quick && likely) || way->others >= trial;

    way->others = (uint8_t)(takes ? 0 : way->others + 1);
    return takes;
}

void distance_read(struct distance *distance, uint64_t lines, uint64_t ns)
{
    took(&distance->lent, lines, ns);
}

bool distance_lends(struct distance *distance)
{
    return goes(&distance->lent, distance_is_near(distance));
}

void distance_stored(struct distance *distance, uint64_t lines, uint64_t ns)
{
    took(&distance->stored, lines, ns);
}

bool distance_is_stored_to(const struct distance *distance)
{
    return distance_is_near(distance) || distance->stored.quick > 0;
}

bool distance_stores(struct distance *distance)
{
    return distance_is_near(distance) || goes(&distance->stored, false);
}
