/* Notes come on the control channel among comm's own messages; whoever looks there acts on them at once, so that a rank
 * that waits for another's answer waits no longer than that rank takes to look. */
#include <stdlib.h>
#include <string.h>

#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"

_Static_assert((int)NOTE_BYTES == (int)CONTROL_BYTES, "a note is a control message");

void nccl_fail(struct transport *transport, enum status st, const char *text)
{
    if (!transport->failed) {
        transport->failed = true;
        (void)error_set(&transport->failure, st, "%s", text);
    }
    nccl_teardown_begin(transport);
}

enum status nccl_failed(const struct transport *transport, struct error *err)
{
    return transport->failed ? error_set(err, transport->failure.status, "%s", transport->failure.text) : STATUS_OK;
}

enum status nccl_tell(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    unsigned char bytes[NOTE_BYTES];

    note_encode(note, bytes);
    return transport->carrier_ops->control_send(transport->carrier, peer, bytes, err);
}

static enum status act(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    switch (note->kind) {
    case NOTE_HELLO:
    case NOTE_ID:
    case NOTE_BUILT:
    case NOTE_START:
    case NOTE_FAILED:
        if (transport->boot)
            nccl_boot_note(transport, peer, note);
        return STATUS_OK;
    case NOTE_READY:
    case NOTE_GO:
        return nccl_transfer_note(transport, peer, note, err);
    default:
        return nccl_native_note(transport, peer, note, err);
    }
}

enum status nccl_hear(struct transport *transport, int *ret_peer, void *bytes, bool *ret_any, bool *ret_letter,
                      struct error *err)
{
    struct note note;
    bool ours = false;
    enum status st = transport->carrier_ops->control_receive(transport->carrier, ret_peer, bytes, ret_any, err);

    *ret_letter = false;
    if (st != STATUS_OK || !*ret_any)
        return st;
    st = note_decode(bytes, &note, &ours, err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "from rank %d", *ret_peer);
    *ret_letter = !ours;
    /* After a failure nothing is agreed on any more. */
    return ours && !transport->failed ? act(transport, *ret_peer, &note, err) : STATUS_OK;
}

static enum status keep_letter(struct transport *transport, int peer, const unsigned char *bytes, struct error *err)
{
    struct letter *letter = NULL;

    if (transport->letter_count < MAX_LETTERS)
        letter = malloc(sizeof *letter);
    if (!letter)
        return error_set(err, STATUS_NOMEM, "%zu control messages that nobody has taken", transport->letter_count);
    letter->next = NULL;
    letter->peer = peer;
    memcpy(letter->bytes, bytes, sizeof letter->bytes);
    *transport->letters_end = letter;
    transport->letters_end = &letter->next;
    transport->letter_count++;
    return STATUS_OK;
}

static enum status hear_all(struct transport *transport, struct error *err)
{
    bool any = true;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && any) {
        unsigned char bytes[CONTROL_BYTES];
        bool letter = false;
        int peer = -1;

        st = nccl_hear(transport, &peer, bytes, &any, &letter, err);
        if (st == STATUS_OK && letter)
            st = keep_letter(transport, peer, bytes, err);
    }
    return st;
}

/* What went wrong in NCCL's own threads, or on the device. */
static enum status look_at_comm(struct transport *transport, struct error *err)
{
    ncclResult_t state = ncclSuccess;
    enum status st;

    if (!transport->comm || transport->boot || nccl_lines_busy(transport)) /* these look for themselves */
        return STATUS_OK;
    st = nccl_status(ncclCommGetAsyncError(transport->comm, &state), "ncclCommGetAsyncError", transport->comm, err);
    return st == STATUS_OK ? nccl_status(state, "NCCL, asynchronously", transport->comm, err) : st;
}

void nccl_progress(struct transport *transport)
{
    struct error err;
    enum status st;

    if (transport->failed) {
        nccl_teardown_step(transport);
        return;
    }
    error_init(&err);
    st = hear_all(transport, &err);
    if (st == STATUS_OK)
        st = nccl_use_device(transport, &err);
    if (st == STATUS_OK)
        st = look_at_comm(transport, &err);
    if (st == STATUS_OK)
        st = nccl_native_step(transport, &err);
    if (st != STATUS_OK)
        nccl_fail(transport, st, err.text);
    else
        nccl_launch_step(transport);
}
