/* Control messages: copied, sent without waiting, kept until they have left.  512 bytes go eagerly, so the list is
 * short unless a peer has stopped; then it is bounded. */
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_errors.h"
#include "backends/mpi/mpi_private.h"

enum { CONTROL_TAG = 0, MAX_LETTERS = 16384 };

void mpi_letters_test(struct transport *transport)
{
    struct letter **at = &transport->letters;

    while (*at) {
        struct letter *letter = *at;
        int done = 0;

        if (MPI_Test(&letter->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
            at = &letter->next;
            continue;
        }
        *at = letter->next;
        transport->letter_count--;
        free(letter);
    }
}

enum status mpi_control_send(struct transport *transport, int peer, const void *bytes, struct error *err)
{
    struct letter *letter;
    enum status st;

    mpi_letters_test(transport);
    if (transport->letter_count >= MAX_LETTERS)
        return error_set(err, STATUS_TRANSPORT, "%d control messages have not been taken by their receivers",
                         transport->letter_count);
    letter = malloc(sizeof *letter);
    if (!letter)
        return error_set(err, STATUS_NOMEM, "control message to rank %d", peer);
    memcpy(letter->bytes, bytes, CONTROL_BYTES);
    st = mpi_status(
        MPI_Isend(letter->bytes, CONTROL_BYTES, MPI_BYTE, peer, CONTROL_TAG, transport->control, &letter->request),
        "MPI_Isend of a control message", err);
    if (st) {
        free(letter);
        return st;
    }
    letter->next = transport->letters;
    transport->letters = letter;
    transport->letter_count++;
    return STATUS_OK;
}

enum status mpi_control_receive(struct transport *transport, int *ret_peer, void *bytes, bool *ret, struct error *err)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status what;
    int found = 0;
    int count = 0;
    enum status st;

    *ret = false;
    if (transport->letters)
        mpi_letters_test(transport);
    /* Every rank comes here while it lives, so that nobody's short messages wait to be asked for. */
    if (transport->post)
        post_take_in(transport->post, &transport->messages);
    st = mpi_status(MPI_Improbe(MPI_ANY_SOURCE, CONTROL_TAG, transport->control, &found, &message, &what),
                    "MPI_Improbe of a control message", err);
    if (st || !found)
        return st;
    (void)MPI_Get_count(&what, MPI_BYTE, &count);
    if (count != CONTROL_BYTES)
        return error_set(err, STATUS_CORRUPT, "control message of %d bytes from rank %d, expected %d", count,
                         what.MPI_SOURCE, CONTROL_BYTES);
    st = mpi_status(MPI_Mrecv(bytes, count, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv of a control message",
                    err);
    *ret_peer = what.MPI_SOURCE;
    *ret = st == STATUS_OK;
    return st;
}
