/* The balanced tree over member order: the order of every sum, and the way up and down of votes in large groups. */
#ifndef COMM_MEMBER_TREE_H
#define COMM_MEMBER_TREE_H

#include <stdbool.h>

/* Where a member stands in the node at some depth: the first of its left or of its right half.  A node is a range of
 * members; its left half gets the first half rounded up, and its first member speaks for it. */
struct tree_place {
    bool leads;   /* it is the node's first member */
    bool follows; /* it is the first member of the right half */
    int other;    /* the first member of the other half; -1: the member stands in no node at this depth */
    int right;    /* members in the right half */
};

/* Depth of a tree of this many members: 0 for one. */
int tree_depth(int size);

/* depth 0 is the root. */
struct tree_place tree_place(int size, int member, int depth);

/* The way up takes rounds 0 to depth - 1, deepest nodes first; the way down the next depth rounds.  In which node does
 * a member stand in this round? */
struct tree_place tree_round(int size, int member, int round);

#endif
