/* MPI for the programs here that call it beside the plugin's thread. */
#ifndef TESTS_MPI_THREADS_H
#define TESTS_MPI_THREADS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>

enum { SKIPPED = 77 }; /* what meson takes for it */

/* Start it.  False: it has no MPI_THREAD_MULTIPLE, was ended again, and the program is to return SKIPPED. */
static inline bool threads_start(int *argc, char ***argv)
{
    int level = 0;

    (void)MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    if (level >= MPI_THREAD_MULTIPLE)
        return true;
    (void)fprintf(stderr, "SKIP: this MPI has no MPI_THREAD_MULTIPLE\n");
    (void)MPI_Finalize();
    return false;
}

#endif
