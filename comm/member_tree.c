/* Walk from the root towards the member, halving the range. */
#include "comm/member_tree.h"

int tree_depth(int size)
{
    int depth = 0;

    while ((1 << depth) < size)
        depth++;
    return depth;
}

struct tree_place tree_place(int size, int member, int depth)
{
    struct tree_place place = {.other = -1};
    int low = 0;
    int high = size;

    for (int d = 0; high - low > 1; d++) {
        int mid = low + (high - low + 1) / 2;

        if (d == depth) {
            place.leads = member == low;
            place.follows = member == mid;
            place.other = place.leads ? mid : low;
            place.right = high - mid;
            return place;
        }
        if (member < mid)
            high = mid;
        else
            low = mid;
    }
    return place;
}

struct tree_place tree_round(int size, int member, int round)
{
    int depth = tree_depth(size);

    return tree_place(size, member, round < depth ? depth - 1 - round : round - depth);
}
