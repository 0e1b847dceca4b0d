/* Scores, of looks and of reads.  A read that was quick outweighs those that were slow: nobody reads more quickly than
 * he can, but whoever is interrupted, or finds his pages unmapped, is slow once.
 *
 * Cost: where lending is slow, one message in TRIAL_LATER * SURE is lent all the same.  If that takes three times as
 * long as mailing it, it is three in a hundred of all. */
#include "backends/mpi/mpi_distance.h"

enum {
    /* Of a look: 10 to 60 with one cache, 90 to 170 and more without (of an AMD EPYC); 60 to 130 where one cache spans
     * many cores (of an Intel Xeon).  What takes longer than the second tells of something else. */
    NEAR_NS = 75,
    LOST_NS = 2000,

    /* Of a lent line among many, with the copy to where it belongs: 4 to 10 with one cache, of either machine, 25 and
     * more without.  What takes longer than the second, in the mean, tells of something else. */
    QUICK_NS = 16,
    LOST_LINE_NS = 250,
    LEAST_LINES = 64,

    SURE = 4, /* looks, or reads, that balance each other */
    /* Messages before one is lent to measure: of what is not known, and for each read that was slow. */
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
    if (distance->near == SURE && distance->far && distance->quick < 0)
        distance->quick = 0;
    if (distance->near == SURE || distance->near == -SURE)
        distance->far = distance->near < 0;
}

bool distance_is_near(const struct distance *distance)
{
    return distance->near > 0;
}

void distance_read(struct distance *distance, uint64_t lines, uint64_t ns)
{
    int8_t *quick = &distance->quick;

    if (!ns || lines < LEAST_LINES || ns / lines >= LOST_LINE_NS)
        return;
    if (ns / lines >= QUICK_NS)
        *quick = (int8_t)(*quick > -SURE ? *quick - 1 : -SURE);
    else if (*quick < 0)
        *quick = 0;
    else
        *quick = (int8_t)(*quick < SURE ? *quick + 1 : SURE);
}

bool distance_lends(struct distance *distance)
{
    int trial = distance->quick < 0 ? -distance->quick * TRIAL_LATER : TRIAL_SOON;
    bool lends = distance->quick > 0 || (!distance->quick && distance->near > 0) || distance->mailed >= trial;

    distance->mailed = (uint8_t)(lends ? 0 : distance->mailed + 1);
    return lends;
}
